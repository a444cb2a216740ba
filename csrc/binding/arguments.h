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
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "binding/export.h"

namespace thunderkittens {

enum class argument_kind : uint8_t { tensor, number, integer, boolean };

enum class dtype_rule : uint8_t {
  none,             // not a tensor
  floating,         // float32, float16, bfloat16 or float64
  same,             // the dtype of the op's first tensor
  same_or_float32,  // that, or float32
  statistics,       // float32, or float64 when the first tensor is float64
  index,            // int32 or int64
};

inline constexpr int kMaxRank = 4;
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
  argument_kind kind = argument_kind::tensor;
  bool optional = false;
  dtype_rule dtype = dtype_rule::none;
  shape_rule shape;
  double minimum =
      -std::numeric_limits<double>::max();  // of a number or integer, which must also be finite
};

// `multiple` % `divisor` == 0, both names of dimensions.
struct divisibility {
  std::string_view multiple, divisor;
};

struct argument_table {
  std::string_view op;       // as the messages name it
  std::string_view variant;  // "" or what tells two tables of one op apart, such as "packed"
  std::span<const argument> arguments;
  std::array<std::string_view, kMaxDims> dims{};
  std::optional<divisibility> relation;
};

// ---- Building a table at compile time -----------------------------------------------------------

constexpr argument tensor(std::string_view name, dtype_rule dtype, std::string_view shape) {
  argument a{.name = name, .dtype = dtype, .shape = {}};
  a.shape.text = shape;
  return a;
}
constexpr argument number(std::string_view name,
                          double minimum = -std::numeric_limits<double>::max()) {
  return {.name = name, .kind = argument_kind::number, .shape = {}, .minimum = minimum};
}
constexpr argument integer(std::string_view name, double minimum) {
  return {.name = name, .kind = argument_kind::integer, .shape = {}, .minimum = minimum};
}
constexpr argument boolean(std::string_view name) {
  return {.name = name, .kind = argument_kind::boolean, .shape = {}};
}
constexpr argument optional(argument a) {
  a.optional = true;
  return a;
}

// Arguments with their shapes parsed, plus the names of the dimensions. Keep it in a constexpr
// variable; `table()` is a view of it.
template <size_t Count>
struct arguments {
  std::array<argument, Count> list;
  std::array<std::string_view, kMaxDims> dims{};

  constexpr explicit arguments(const argument (&items)[Count]) {
    for (size_t i = 0; i < Count; ++i) {
      list[i] = items[i];
      parse(list[i].shape);
    }
  }
  constexpr argument_table table(std::string_view op, std::string_view variant = "",
                                 std::optional<divisibility> relation = {}) const {
    return {op, variant, list, dims, relation};
  }

 private:
  constexpr void parse(shape_rule& shape) {
    std::string_view rest = shape.text;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string_view name = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
      if (name == "*") {
        shape.leading = true;
      } else {
        shape.dims[shape.rank++] = index_of(name);
      }
    }
  }
  constexpr uint8_t index_of(std::string_view name) {
    uint8_t i = 0;
    while (!dims.at(i).empty() && dims[i] != name) ++i;
    dims[i] = name;
    return i;
  }
};

// ---- Checking a call ----------------------------------------------------------------------------

// What a call passes for one argument.
struct value {
  const at::Tensor* tensor = nullptr;
  std::optional<double> number;

  value(const at::Tensor& t) : tensor(&t) {}  // NOLINT
  value(const std::optional<at::Tensor>& t)
      : tensor(t && t->defined() ? &*t : nullptr) {}    // NOLINT
  value(double v) : number(v) {}                        // NOLINT
  value(bool) {}                                        // NOLINT
  value(const std::optional<double>& v) : number(v) {}  // NOLINT
  value(const std::optional<int64_t>& v) {              // NOLINT
    if (v) number = static_cast<double>(*v);
  }
  value(const std::optional<c10::SymInt>& v) {  // NOLINT
    if (v && v->maybe_as_int()) number = static_cast<double>(*v->maybe_as_int());
  }
};

// Raises unless `values`, in the table's order, are allowed. Costs about 0.1 µs when they are.
// Symbolic sizes (torch.compile) are compared without specialising them.
void check(const argument_table& table, std::initializer_list<value> values);

// Raises unless every required tensor is given and all are strided: what an Autograd kernel checks
// before it saves tensors. `check` repeats it.
void check_dense(const argument_table& table, std::initializer_list<value> values);

// The tables of every op, for Python. An op enters its own at load time.
KITTENS_EXPORT std::span<const argument_table* const> all_argument_tables();

struct enter_arguments {
  explicit enter_arguments(const argument_table& table);
};

KITTENS_EXPORT std::string_view name(argument_kind kind);
KITTENS_EXPORT std::string_view name(dtype_rule rule);

}  // namespace thunderkittens
