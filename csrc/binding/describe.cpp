#include "binding/describe.h"

#include <ATen/ops/empty.h>

#include "binding/layout.h"

namespace thunderkittens {
namespace {

// What the call passes for the argument that a result is like; null where it is not given.
const at::Tensor* like_of(const op_description& op, const result& r,
                          std::span<const value> values) {
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    if (op.arguments[i].name == r.like) return values[i].tensor;
  }
  return nullptr;
}

// Whether the i-th result is wanted.
bool is_needed(const op_description& op, std::span<const value> values, size_t i) {
  for (size_t j = 0; j < values.size(); ++j) {
    if (values[j].flags == nullptr) continue;
    const size_t first = op.results.size() - op.arguments[j].count;
    return i < first || values[j].flags[i - first];
  }
  return true;
}

}  // namespace

std::string schema(std::string_view name, const op_description& op, argument_range written,
                   bool defaults) {
  std::string text(name);
  const char* separator = "(";
  const auto append = [&](std::string_view part) { text += part; };
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const argument& a = op.arguments[i];
    append(separator);
    separator = ", ";
    if (a.keyword) append("*, ");
    append(a.type);
    if (written.has(i)) text += {'(', static_cast<char>('a' + i), '!', ')'};
    if (a.optional) append("?");
    append(" ");
    append(a.name);
    if (!defaults || a.fallback.empty()) continue;
    append("=");
    append(a.fallback);
  }
  append(") -> ");
  if (op.results.size() == 1) return text + "Tensor";
  append("(");
  separator = "";
  for (const result& r : op.results) {
    append(separator);
    separator = ", ";
    append("Tensor");
    if (!r.name.empty()) text += " ";
    append(r.name);
  }
  return text + ")";
}

bool is_wanted(const op_description& op, std::span<const value> values, size_t i) {
  const result_rule rule = op.results[i].rule;
  const bool like = rule == result_rule::like || rule == result_rule::like_if_given;
  return is_needed(op, values, i) && (!like || like_of(op, op.results[i], values) != nullptr);
}

std::string_view shape_of_result(const op_description& op, size_t i) {
  const result& r = op.results[i];
  if (r.rule == result_rule::own || r.rule == result_rule::loss) return r.shape;
  if (r.rule == result_rule::statistics) return "*";
  for (const argument& a : op.arguments) {
    if (a.name == r.like) return a.shape.text;
  }
  return "";
}

bool is_packed(const op_description& op, std::span<const bool> given) {
  const argument* first = nullptr;
  bool packed = false;
  for (size_t i = 0; i < given.size(); ++i) {
    const argument& a = op.arguments[i];
    if (!a.packed_only) continue;
    if (first == nullptr) {
      first = &a;
      packed = given[i];
    }
    TORCH_CHECK_VALUE(packed || !given[i], op.op, ": ", a.name, " must be None without ",
                      first->name, ", got a ", a.type == "Tensor" ? "tensor" : "number");
    TORCH_CHECK_VALUE(!packed || given[i], op.op, ": ", a.name, " must be given with ", first->name,
                      ", got None");
  }
  return packed;
}

bool takes_autocast(dtype_rule rule, const value& given) {
  if (given.tensor == nullptr) return false;
  if (rule == dtype_rule::same_or_float32) return given.tensor->scalar_type() != at::kFloat;
  return rule == dtype_rule::floating || rule == dtype_rule::same;
}

void check_needs(const op_description& op, std::span<const value> values) {
  for (size_t i = 0; i < op.results.size(); ++i) {
    const result& r = op.results[i];
    if (r.rule != result_rule::like || !is_needed(op, values, i)) continue;
    TORCH_CHECK_VALUE(like_of(op, r, values) != nullptr, op.op, ": ", r.like,
                      " must be given when its gradient is needed, got None");
  }
}

void refuse_gradient(const op_description& op, size_t i, std::string_view why) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.op, ": ", op.arguments[i].name,
                              " must not require a gradient, since ", why, ", got one that does");
}

at::Tensor empty_statistics(const at::Tensor& t, bool by_row) {
  const auto sizes = by_row ? t.sym_sizes().slice(0, t.dim() - 1) : c10::SymIntArrayRef();
  return at::empty_symint(sizes, t.options().dtype(statistics_dtype(t)));
}

void make_empty(const op_description& op, std::span<const value> values, bool by_row,
                std::span<at::Tensor> results) {
  const at::Tensor& first = *values.front().tensor;
  for (size_t i = 0; i < results.size(); ++i) {
    const result& r = op.results[i];
    if (r.rule == result_rule::statistics || r.rule == result_rule::loss) {
      results[i] = empty_statistics(first, by_row || r.rule == result_rule::statistics);
      continue;
    }
    const at::Tensor* const like = is_needed(op, values, i) ? like_of(op, r, values) : nullptr;
    results[i] = like != nullptr ? empty_contiguous(*like) : none(first);
  }
}

namespace {
std::vector<registered_op>& all_registered() {
  static std::vector<registered_op> list;
  return list;
}
}  // namespace

void enter(registered_op op) { all_registered().push_back(std::move(op)); }
std::span<const registered_op> registered_ops() { return all_registered(); }

at::ScalarType statistics_dtype(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace thunderkittens
