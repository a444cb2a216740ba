// One table per op says what its arguments may be. The table drives the checks of every call (CPU,
// CUDA and Meta alike), and Python reads the same table to generate the tests of refused calls.
//
// A refused call raises before anything is launched, and its sentence names op, argument, expected,
// got:
//   layer_norm: weight must have shape [1024] (x.size(-1)), got [512]
// Wrong values, shapes and devices are a ValueError, wrong dtypes a TypeError, and layouts or
// devices that no backend handles a NotImplementedError.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "binding/export.h"

namespace thunderkittens {

enum class argument_kind : uint8_t {
  tensor,
  number,
  integer,
  boolean,
  word,    // one of some
  option,  // whatever else: the op checks it itself
};

enum class dtype_rule : uint8_t {
  none,             // not a tensor
  floating,         // float32, float16, bfloat16 or float64
  same,             // the dtype of the op's first tensor
  same_or_float32,  // that, or float32
  same_or_float8,   // that, or float8_e4m3fn
  float32,
  statistics,  // float32, or float64 when the first tensor is float64
  index,       // int32 or int64
};

inline constexpr int kMaxRank = 5;
inline constexpr int kMaxWords = 3;
inline constexpr int kMaxDims = 8;  // distinct dimension names in one table

// The dimensions of a tensor, parsed from text such as "B,Sq,Hq,D" or "*,N" (any leading
// dimensions, then N). Equal names are equal sizes; a name's first appearance in the table defines
// its size.
struct shape_rule {
  std::string_view text;
  bool leading = false;                  // starts with "*"
  uint8_t rank = 0;                      // named dimensions, "*" not counted
  std::array<uint8_t, kMaxRank> dims{};  // index into argument_table::dims
};

struct argument {
  std::string_view name;
  std::string_view type;  // as the schema has it, such as "Tensor" or "float"
  argument_kind kind = argument_kind::option;
  bool optional = false;
  dtype_rule dtype = dtype_rule::none;
  shape_rule shape;
  // Of a number or integer, which must also be finite.
  double minimum = -std::numeric_limits<double>::max();
  double maximum = std::numeric_limits<double>::max();
  std::array<std::string_view, kMaxWords> words{};  // that a word may be
  std::string_view fallback;                        // its default, as the schema has it; "": none
  bool keyword = false;                             // it and those after it are given by name
  bool constant = false;          // the op's results do not depend on its elements
  std::string_view packed_shape;  // where the sequences of a batch are packed
  uint8_t count = 0;              // of a list
  bool packed_only = false;       // given by such calls alone, and by all of them
};

// `multiple` % `divisor` == 0, both names of dimensions.
struct divisibility {
  std::string_view multiple, divisor;
  // The dimensions that stand there where the caller has swapped them, and what is said of a call
  // in which only those divide.
  std::string_view swapped_multiple = {}, swapped_divisor = {}, advice = {};
};

struct argument_table {
  std::string_view op;       // as the messages name it
  std::string_view variant;  // "" or what tells two tables of one op apart, such as "packed"
  std::span<const argument> arguments;
  std::array<std::string_view, kMaxDims> dims{};
  std::optional<divisibility> relation;
};

// ---- Checking a call ----------------------------------------------------------------------------

// What a call passes for one argument.
struct value {
  const at::Tensor* tensor = nullptr;
  std::optional<double> number;
  const bool* flags = nullptr;  // of `needs`
  std::string_view word;

  value(const at::Tensor& t) : tensor(&t) {}  // NOLINT
  value(const std::optional<at::Tensor>& t)
      : tensor(t && t->defined() ? &*t : nullptr) {}  // NOLINT
  value(double v) : number(v) {}                      // NOLINT
  value(bool) {}                                      // NOLINT
  value(std::string_view v) : word(v) {}              // NOLINT
  template <size_t Count>
  value(const std::array<bool, Count>& v) : flags(v.data()) {}  // NOLINT
  value(int64_t v) : number(static_cast<double>(v)) {}          // NOLINT
  value(const c10::SymInt& v) : value(std::optional(v)) {}      // NOLINT
  value(const std::optional<double>& v) : number(v) {}          // NOLINT
  value(const std::optional<int64_t>& v) {                      // NOLINT
    if (v) number = static_cast<double>(*v);
  }
  value(const std::optional<c10::SymInt>& v) {  // NOLINT
    if (v && v->maybe_as_int()) number = static_cast<double>(*v->maybe_as_int());
  }
};

// Raises unless `values`, in the table's order, are allowed. Costs about 0.1 µs when they are.
// Symbolic sizes (torch.compile) are compared without specialising them.
void check(const argument_table& table, std::span<const value> values);

void check_layout(const argument_table& table, const argument& a, const at::Tensor& t);

// The tables of every op, for Python. An op enters its own at load time.
KITTENS_EXPORT std::span<const argument_table* const> all_argument_tables();
void enter(const argument_table& table);

KITTENS_EXPORT std::string_view name(argument_kind kind);
KITTENS_EXPORT std::string_view name(dtype_rule rule);

}  // namespace thunderkittens
