#include "binding/arguments.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace thunderkittens {
namespace {

bool same_size(int64_t a, int64_t b) { return a == b; }
bool same_size(const c10::SymInt& a, const c10::SymInt& b) {
  return a.sym_eq(b).expect_true(__FILE__, __LINE__);
}

c10::IntArrayRef sizes_of(const at::Tensor& t, int64_t) { return t.sizes(); }
c10::SymIntArrayRef sizes_of(const at::Tensor& t, const c10::SymInt&) { return t.sym_sizes(); }

// Where the size of a named dimension was first seen.
template <class Size>
struct binding {
  const argument* source = nullptr;
  int from_end = 0;  // -1 is the last dimension
  Size size{};
};

// The state of one check: what the named dimensions and "*" stand for so far.
template <class Size>
class shape_checker {
 public:
  explicit shape_checker(const argument_table& table) : table_(table) {}

  void tensor(const argument& a, const at::Tensor& t) {
    const auto sizes = sizes_of(t, Size{});
    const shape_rule& rule = a.shape;
    const size_t rank = sizes.size();
    if (rule.leading ? rank < rule.rank : rank != rule.rank) fail(a, t);
    const size_t leading = rank - rule.rank;
    if (rule.leading) check_leading(a, t, sizes.slice(0, leading));
    for (size_t i = 0; i < rule.rank; ++i) {
      binding<Size>& dim = dims_[rule.dims[i]];
      if (dim.source == nullptr) {
        dim = {&a, static_cast<int>(i) - rule.rank, sizes[leading + i]};
      } else if (!same_size(dim.size, sizes[leading + i])) {
        fail(a, t);
      }
    }
    const bool no_start = a.packed_only && rank == 1 && TORCH_GUARD_OR_FALSE(sym_eq(sizes[0], 0));
    TORCH_CHECK_VALUE(!no_start, table_.op, ": ", a.name,
                      " must have shape [sequences + 1], got [0]");
  }

  // Raises unless table.relation holds.
  void relation() const {
    if (!table_.relation) return;
    const binding<Size>&multiple = dim(table_.relation->multiple),
          &divisor = dim(table_.relation->divisor);
    const bool both_empty = TORCH_GUARD_OR_FALSE(sym_eq(multiple.size, 0)) &&
                            TORCH_GUARD_OR_FALSE(sym_eq(divisor.size, 0));
    if (both_empty) return;
    const bool divides = !TORCH_GUARD_OR_FALSE(sym_eq(divisor.size, 0)) &&
                         same_size(multiple.size % divisor.size, Size(0));
    TORCH_CHECK_VALUE(divides, table_.op, ": ", multiple.source->name, ".size(", multiple.from_end,
                      ") must be a multiple of ", divisor.source->name, ".size(", divisor.from_end,
                      ") = ", divisor.size, ", got ", multiple.size, advice());
  }

 private:
  static bool sym_eq(int64_t a, int64_t b) { return a == b; }
  static c10::SymBool sym_eq(const c10::SymInt& a, int64_t b) { return a.sym_eq(b); }
  static bool sym_gt(int64_t a, int64_t b) { return a > b; }
  static c10::SymBool sym_gt(const c10::SymInt& a, int64_t b) { return a.sym_gt(b); }

  // For a call that does not divide: whether its dimensions were likely swapped.
  std::string_view advice() const {
    const divisibility& r = *table_.relation;
    if (r.advice.empty() || table_.variant == "packed") return "";
    const Size multiple = dim(r.swapped_multiple).size, divisor = dim(r.swapped_divisor).size;
    const bool would_divide = TORCH_GUARD_OR_FALSE(sym_gt(divisor, 0)) &&
                              TORCH_GUARD_OR_FALSE(sym_eq(multiple % divisor, 0));
    return would_divide ? r.advice : "";
  }

  const binding<Size>& dim(std::string_view name) const {
    size_t i = 0;
    while (table_.dims[i] != name) ++i;
    return dims_[i];
  }

  template <class Sizes>
  void check_leading(const argument& a, const at::Tensor& t, const Sizes& sizes) {
    if (leading_source_ == nullptr) {
      leading_source_ = &a;
      leading_.assign(sizes.begin(), sizes.end());
      return;
    }
    if (sizes.size() != leading_.size()) fail(a, t);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!same_size(sizes[i], leading_[i])) fail(a, t);
    }
  }

  [[noreturn]] void fail(const argument& a, const at::Tensor& t) const {
    std::ostringstream shape, sources;
    const char* comma = "";
    const char* source_comma = "";
    if (a.shape.leading && leading_source_ == nullptr) {
      shape << "*";
      comma = ", ";
    } else if (a.shape.leading) {
      for (const Size& size : leading_) {
        shape << comma << size;
        comma = ", ";
      }
      sources << leading_source_->name << "'s leading sizes";
      source_comma = ", ";
    }
    for (size_t i = 0; i < a.shape.rank; ++i) {
      const binding<Size>& dim = dims_[a.shape.dims[i]];
      shape << comma;
      comma = ", ";
      if (dim.source == nullptr || dim.source == &a) {
        shape << table_.dims[a.shape.dims[i]];
        continue;
      }
      shape << dim.size;
      sources << source_comma << dim.source->name << ".size(" << dim.from_end << ")";
      source_comma = ", ";
    }
    const std::string because = sources.str().empty() ? "" : " (" + sources.str() + ")";
    TORCH_CHECK_VALUE(false, table_.op, ": ", a.name, " must have shape [", shape.str(), "]",
                      because, ", got ", t.sym_sizes());
  }

  const argument_table& table_;
  std::array<binding<Size>, kMaxDims> dims_{};
  const argument* leading_source_ = nullptr;
  c10::SmallVector<Size, 4> leading_;
};

bool is_floating(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kDouble;
}

bool allowed(dtype_rule rule, at::ScalarType type, at::ScalarType first) {
  switch (rule) {
    case dtype_rule::floating: return is_floating(type);
    case dtype_rule::same: return type == first;
    case dtype_rule::same_or_float32: return type == first || type == at::kFloat;
    case dtype_rule::same_or_float8: return type == first || type == at::kFloat8_e4m3fn;
    case dtype_rule::float32: return type == at::kFloat;
    case dtype_rule::statistics: return type == (first == at::kDouble ? at::kDouble : at::kFloat);
    case dtype_rule::index: return type == at::kInt || type == at::kLong;
    case dtype_rule::none: break;
  }
  return false;
}

std::string python_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float32";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kDouble: return "float64";
    case at::kByte: return "uint8";
    case at::kChar: return "int8";
    case at::kShort: return "int16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    case at::kBool: return "bool";
    case at::kComplexFloat: return "complex64";
    case at::kComplexDouble: return "complex128";
    case at::kFloat8_e4m3fn: return "float8_e4m3fn";
    default: return c10::toString(type);
  }
}

[[noreturn]] void fail_dtype(const argument_table& table, const argument& a, at::ScalarType got,
                             std::string_view first_name, at::ScalarType first) {
  std::string expected;
  switch (a.dtype) {
    case dtype_rule::floating: expected = "float32, float16, bfloat16 or float64"; break;
    case dtype_rule::same: expected = python_name(first); break;
    case dtype_rule::same_or_float32:
      expected = first == at::kFloat ? "float32" : python_name(first) + " or float32";
      break;
    case dtype_rule::same_or_float8: expected = python_name(first) + " or float8_e4m3fn"; break;
    case dtype_rule::float32: expected = "float32"; break;
    case dtype_rule::statistics: expected = first == at::kDouble ? "float64" : "float32"; break;
    default: expected = "int32 or int64"; break;
  }
  const bool like = a.dtype == dtype_rule::same || a.dtype == dtype_rule::same_or_float32 ||
                    a.dtype == dtype_rule::same_or_float8;
  TORCH_CHECK_TYPE(false, table.op, ": ", a.name, " must have dtype ", expected,
                   like ? " (" + std::string(first_name) + " is " + python_name(first) + ")" : "",
                   ", got ", python_name(got));
}

}  // namespace

void check_layout(const argument_table& table, const argument& a, const at::Tensor& t) {
  TORCH_CHECK_TYPE(t.defined(), table.op, ": ", a.name, " must be a tensor, got None");
  const bool strided = t.layout() == at::kStrided && !t.is_nested();
  if (!strided) {
    std::ostringstream layout;
    if (t.is_nested())
      layout << "a nested tensor";
    else
      layout << t.layout();
    TORCH_CHECK_NOT_IMPLEMENTED(false, table.op, ": ", a.name,
                                " must be a dense (strided) tensor, got ", layout.str());
  }
}

namespace {

// Layout, dtype and device; `first` is the call's first tensor, which the others follow.
void check_kind(const argument_table& table, const argument& a, const at::Tensor& t,
                const at::Tensor& first) {
  check_layout(table, a, t);
  if (!allowed(a.dtype, t.scalar_type(), first.scalar_type())) {
    fail_dtype(table, a, t.scalar_type(), table.arguments[0].name, first.scalar_type());
  }
  if (&t == &first) {
    const at::Device device = t.device();
    TORCH_CHECK_NOT_IMPLEMENTED(device.is_cpu() || device.is_cuda() || device.is_meta(), table.op,
                                ": ", a.name, " must be on a cpu or cuda device, got ", device);
    return;
  }
  TORCH_CHECK_VALUE(t.device() == first.device(), table.op, ": ", a.name, " must be on ",
                    first.device(), " (", table.arguments[0].name, "'s device), got ", t.device());
}

void check_number(const argument_table& table, const argument& a, double got) {
  if (got >= a.minimum && got <= a.maximum) return;
  const bool bounded = a.minimum > -std::numeric_limits<double>::max();
  std::ostringstream expected;
  expected << (a.kind == argument_kind::number ? "finite" : "an integer");
  if (bounded) expected << (a.kind == argument_kind::number ? " and" : "") << " >= " << a.minimum;
  if (a.maximum < std::numeric_limits<double>::max()) expected << " and <= " << a.maximum;
  TORCH_CHECK_VALUE(false, table.op, ": ", a.name, " must be ", expected.str(), ", got ", got);
}

void check_word(const argument_table& table, const argument& a, std::string_view got) {
  if (std::ranges::find(a.words, got) != a.words.end() && !got.empty()) return;
  const auto count = std::ranges::find(a.words, "") - a.words.begin();
  std::ostringstream expected;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    expected << (i == 0 ? "" : i + 1 == count ? " or " : ", ") << '"' << a.words[i] << '"';
  }
  TORCH_CHECK_VALUE(false, table.op, ": ", a.name, " must be ", expected.str(), ", got \"", got,
                    "\"");
}

template <class Size>
void check_values(const argument_table& table, std::span<const value> values) {
  const at::Tensor& first = *values.front().tensor;
  shape_checker<Size> shapes(table);
  const argument* a = table.arguments.data();
  for (const value& v : values) {
    if (a->kind == argument_kind::option) {
    } else if (v.tensor != nullptr) {
      check_kind(table, *a, *v.tensor, first);
      shapes.tensor(*a, *v.tensor);
    } else if (v.number) {
      check_number(table, *a, *v.number);
    } else if (a->kind == argument_kind::word) {
      check_word(table, *a, v.word);
    }
    ++a;
  }
  shapes.relation();
}

std::vector<const argument_table*>& tables() {
  static std::vector<const argument_table*> list;
  return list;
}

}  // namespace

void check(const argument_table& table, std::span<const value> values) {
  TORCH_INTERNAL_ASSERT(values.size() == table.arguments.size() && values.front().tensor);
  for (const value& v : values) {
    // A nested tensor has no sizes to ask for; check_kind refuses it.
    const bool symbolic = v.tensor != nullptr && !v.tensor->is_nested() &&
                          v.tensor->unsafeGetTensorImpl()->has_symbolic_sizes_strides();
    if (symbolic) return check_values<c10::SymInt>(table, values);
  }
  check_values<int64_t>(table, values);
}

std::span<const argument_table* const> all_argument_tables() { return tables(); }

void enter(const argument_table& table) { tables().push_back(&table); }

std::string_view name(argument_kind kind) {
  switch (kind) {
    case argument_kind::tensor: return "tensor";
    case argument_kind::number: return "number";
    case argument_kind::integer: return "integer";
    case argument_kind::boolean: return "boolean";
    case argument_kind::word: return "word";
    case argument_kind::option: return "option";
  }
  return "";
}

std::string_view name(dtype_rule rule) {
  switch (rule) {
    case dtype_rule::none: return "none";
    case dtype_rule::floating: return "floating";
    case dtype_rule::same: return "same";
    case dtype_rule::same_or_float32: return "same_or_float32";
    case dtype_rule::same_or_float8: return "same_or_float8";
    case dtype_rule::float32: return "float32";
    case dtype_rule::statistics: return "statistics";
    case dtype_rule::index: return "index";
  }
  return "";
}

}  // namespace thunderkittens
