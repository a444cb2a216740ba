// The description of an op: one list of its arguments and one of its results. From it come the
// schema, the checks and their tests, Meta, what is saved for the backward, and how it is called
// (binding/op.h). Everything here is computed by the compiler.
//
//   static constexpr argument_list arguments{
//       tensor("x", dtype_rule::floating, "*,N"),
//       optional(tensor("weight", dtype_rule::same_or_float32, "N")).otherwise("None"),
//       number("eps", 0.0).otherwise("1e-5"),
//   };
//   static constexpr result_list results{like("y", "x"), statistics("mean"), statistics("rstd")};
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>

#include "binding/arguments.h"
#include "binding/tensors.h"

namespace thunderkittens {

// ---- Names --------------------------------------------------------------------------------------

// A text that a template may have as its argument.
template <size_t Size>
struct literal {
  char text[Size]{};
  constexpr literal(const char (&t)[Size]) { std::copy_n(t, Size, text); }  // NOLINT
  constexpr explicit literal(std::string_view a, std::string_view b) {
    std::copy_n(b.begin(), b.size(), std::copy_n(a.begin(), a.size(), text));
  }
};

// The names of the backward of an op.
template <literal Op>
struct gradients_of {
  static constexpr literal<sizeof Op.text + sizeof "_backward" - 1> kName{Op.text, "_backward"};
  static constexpr const char* name = kName.text;
  static constexpr const char* differentiates = Op.text;
};

// ---- Arguments ----------------------------------------------------------------------------------

// An argument, and the type T as which functions take it.
template <class T>
struct typed : argument {
  constexpr typed otherwise(std::string_view value) const {
    typed a = *this;
    a.fallback = value;
    return a;
  }
  constexpr typed at_most(double value) const {
    typed a = *this;
    a.maximum = value;
    return a;
  }
  constexpr typed by_name() const {
    typed a = *this;
    a.keyword = true;
    return a;
  }
  constexpr typed as_constant() const {
    typed a = *this;
    a.constant = true;
    return a;
  }
  constexpr typed if_packed(std::string_view shape) const {
    typed a = *this;
    a.packed_shape = shape;
    return a;
  }
  constexpr typed only_if_packed() const {
    typed a = *this;
    a.packed_only = true;
    return a;
  }
};

constexpr typed<const at::Tensor&> tensor(std::string_view name, dtype_rule dtype,
                                          std::string_view shape) {
  return {{.name = name,
           .type = "Tensor",
           .kind = argument_kind::tensor,
           .dtype = dtype,
           .shape = {.text = shape}}};
}
// One that the op checks itself.
constexpr typed<const at::Tensor&> tensor(std::string_view name) {
  return {{.name = name, .type = "Tensor", .shape = {}}};
}
constexpr typed<double> number(std::string_view name,
                               double minimum = -std::numeric_limits<double>::max()) {
  return {{.name = name,
           .type = "float",
           .kind = argument_kind::number,
           .shape = {},
           .minimum = minimum}};
}
constexpr typed<int64_t> integer(std::string_view name, double minimum) {
  return {{.name = name,
           .type = "int",
           .kind = argument_kind::integer,
           .shape = {},
           .minimum = minimum}};
}
constexpr typed<int64_t> integer(std::string_view name) {  // any
  return {{.name = name, .type = "int", .shape = {}}};
}
constexpr typed<c10::SymInt> size(std::string_view name, double minimum) {
  return {{.name = name,
           .type = "SymInt",
           .kind = argument_kind::integer,
           .shape = {},
           .minimum = minimum}};
}
constexpr typed<bool> boolean(std::string_view name) {
  return {{.name = name, .type = "bool", .kind = argument_kind::boolean, .shape = {}}};
}
// One of `words`, at most kMaxWords.
constexpr typed<std::string_view> word(std::string_view name, const auto&... words) {
  return {{.name = name,
           .type = "str",
           .kind = argument_kind::word,
           .shape = {},
           .words = {std::string_view(words)...}}};
}
// Which of the last `Count` results are wanted.
template <size_t Count>
constexpr typed<std::array<bool, Count>> needs() {
  constexpr std::string_view kTypes[] = {"bool[0]", "bool[1]", "bool[2]", "bool[3]", "bool[4]",
                                         "bool[5]", "bool[6]", "bool[7]", "bool[8]", "bool[9]"};
  return {{.name = "needs", .type = kTypes[Count], .shape = {}, .count = Count}};
}

namespace detail {
template <class T>
struct optional_of {
  using type = std::optional<T>;
};
template <>
struct optional_of<const at::Tensor&> {
  using type = const std::optional<at::Tensor>&;
};
}  // namespace detail

template <class T>
constexpr typed<typename detail::optional_of<T>::type> optional(const typed<T>& given) {
  typed<typename detail::optional_of<T>::type> a{given};
  a.optional = true;
  return a;
}

// The arguments of an op, which functions take as T.... Keep it in a constexpr variable; tables are
// views of it.
template <class... T>
struct argument_list {
  static constexpr size_t size = sizeof...(T);
  std::array<argument, size> given, list, packed_list;
  std::array<std::string_view, kMaxDims> dims{}, packed_dims{};

  constexpr argument_list(const typed<T>&... items)
      : argument_list(std::array<argument, size>{items...}) {}
  constexpr explicit argument_list(const std::array<argument, size>& items)
      : given(items), list(items), packed_list(items) {
    for (size_t i = 0; i < size; ++i) {
      argument &a = list[i], &packed = packed_list[i];
      if (a.packed_only) {
        a.kind = argument_kind::option;
        packed.optional = false;
      }
      if (!packed.packed_shape.empty()) packed.shape.text = packed.packed_shape;
      parse(a.shape, dims);
      parse(packed.shape, packed_dims);
    }
  }
  constexpr argument_table table(std::string_view op,
                                 std::optional<divisibility> relation = {}) const {
    return {op, "", list, dims, relation};
  }
  constexpr argument_table packed_table(std::string_view op,
                                        std::optional<divisibility> relation = {}) const {
    return {op, "packed", packed_list, packed_dims, relation};
  }
  constexpr bool can_be_packed() const {
    for (const argument& a : list) {
      if (a.packed_only) return true;
    }
    return false;
  }
  // Of the argument of that name; `size` where there is none.
  constexpr size_t find(std::string_view name) const {
    size_t i = 0;
    while (i < size && list[i].name != name) ++i;
    return i;
  }

 private:
  using names = std::array<std::string_view, kMaxDims>;

  static constexpr void parse(shape_rule& shape, names& dims) {
    std::string_view rest = shape.text;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string_view name = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
      if (name == "*") {
        shape.leading = true;
        continue;
      }
      uint8_t i = 0;
      while (!dims.at(i).empty() && dims[i] != name) ++i;
      dims[i] = name;
      shape.dims[shape.rank++] = i;
    }
  }
};
template <class... T>
argument_list(const typed<T>&...) -> argument_list<T...>;

// Those of `b` behind those of `a`.
template <class... T, class... U>
constexpr argument_list<T..., U...> operator+(const argument_list<T...>& a,
                                              const argument_list<U...>& b) {
  std::array<argument, sizeof...(T) + sizeof...(U)> items;
  for (size_t i = 0; i < items.size(); ++i) {
    items[i] = i < a.size ? a.given[i] : b.given[i - a.size];
  }
  return argument_list<T..., U...>(items);
}

// ---- Results ------------------------------------------------------------------------------------

enum class result_rule : uint8_t {
  like,  // shape and dtype of an argument, contiguous; empty where `needs` does not ask for it
  like_if_given,  // the same, and empty where the argument is not given
  statistics,     // one number a row of the first tensor, of float32 (float64 for float64)
  loss,           // the same, or one number for all rows (is_by_row)
  own,            // the op's `meta` makes it
};

struct result {
  std::string_view name;
  result_rule rule = result_rule::own;
  std::string_view like;                            // the argument
  std::string_view gradient;                        // what its gradient is called; "": "d" + name
  std::array<std::string_view, 2> depends_on = {};  // arguments; none: all of them
  std::string_view shape;  // of an own one, as an argument's: "*" for one number a row

  constexpr bool has_gradient(std::string_view other) const {
    if (!gradient.empty()) return other == gradient;
    return !name.empty() && !other.empty() && other[0] == 'd' && other.substr(1) == name;
  }
};

constexpr result like(std::string_view name, std::string_view argument) {
  return {.name = name, .rule = result_rule::like, .like = argument};
}
constexpr result like_if_given(std::string_view name, std::string_view argument) {
  return {.name = name, .rule = result_rule::like_if_given, .like = argument};
}
constexpr result statistics(std::string_view name) {
  return {.name = name, .rule = result_rule::statistics};
}

constexpr result loss(std::string_view name) {
  return {.name = name, .rule = result_rule::loss, .shape = "*"};
}

template <size_t Count>
struct result_list {
  static constexpr size_t size = Count;
  std::array<result, Count> list;

  template <class... Results>
  constexpr explicit result_list(const Results&... items) : list{items...} {}
};
template <class... Results>
result_list(const Results&...) -> result_list<sizeof...(Results)>;

// ---- What follows from a description, at run time -----------------------------------------------

// An op as the functions below see it.
struct op_description {
  std::string_view op;  // as messages name it
  std::span<const argument> arguments;
  std::span<const result> results;
};

// Some arguments in a row.
struct argument_range {
  size_t first = 0, count = 0;
  constexpr bool has(size_t i) const { return i >= first && i - first < count; }
};

// Whether the sequences of a call are packed, by whether each argument is given: the first of those
// that such calls alone have says so. Raises unless the others agree with it.
bool is_packed(const op_description& op, std::span<const bool> given);

// The schema of `name`. `written`: what is written in place; `defaults`: whether those that have
// defaults show them.
std::string schema(std::string_view name, const op_description& op, argument_range written = {},
                   bool defaults = true);

// Whether the i-th result is one that somebody wants, not what stands for it.
bool is_wanted(const op_description& op, std::span<const value> values, size_t i);

// The i-th result's shape, as an argument's; "" for one that has none of its dimensions.
std::string_view shape_of_result(const op_description& op, size_t i);

// Whether an argument of matrix products takes autocast's dtype: what must have the dtype of the
// first tensor does, and what may also be float32, unless it is.
bool takes_autocast(dtype_rule rule, const value& given);

// Raises unless all is given whose gradients `needs` asks for.
void check_needs(const op_description& op, std::span<const value> values);

// Raises, because the i-th argument requires a gradient, which there is none of: `why` says what to
// do instead.
[[noreturn]] void refuse_gradient(const op_description& op, size_t i, std::string_view why);

// Shapes, dtypes and strides of the first results, also of symbolic sizes. `by_row`: is_by_row.
void make_empty(const op_description& op, std::span<const value> values, bool by_row,
                std::span<at::Tensor> results);

// One number a row of `t`, or one for all rows: of float32, or float64 for float64.
at::Tensor empty_statistics(const at::Tensor& t, bool by_row = true);

// The descriptions of all that is registered with torch, by its name there, for Python.
struct registered_op {
  std::string name;
  op_description description;
};
std::span<const registered_op> registered_ops();
void enter(registered_op op);

// float32, or float64 for float64.
at::ScalarType statistics_dtype(const at::Tensor& t);

}  // namespace thunderkittens
