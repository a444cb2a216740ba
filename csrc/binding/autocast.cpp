#include "binding/autocast.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

namespace thunderkittens {
namespace {

bool is_floating(const value& v) {
  return v.tensor != nullptr && v.tensor->defined() && at::isFloatingType(v.tensor->scalar_type());
}

}  // namespace

dtypes_taken promoted_dtypes(std::span<const argument> arguments, std::span<const value> values) {
  // The dtype of the op's first tensor, which its results have.
  std::optional<at::ScalarType> first;
  for (size_t i = 0; i < values.size(); ++i) {
    const dtype_rule rule = arguments[i].dtype;
    if ((rule != dtype_rule::floating && rule != dtype_rule::same) || !is_floating(values[i])) {
      continue;
    }
    const at::ScalarType type = values[i].tensor->scalar_type();
    first = first ? at::promoteTypes(*first, type) : type;
  }
  dtypes_taken taken(values.size());
  if (!first) return taken;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_floating(values[i])) continue;
    const at::ScalarType type = values[i].tensor->scalar_type();
    switch (arguments[i].dtype) {
      case dtype_rule::floating:
      case dtype_rule::same:
        if (type != *first) taken[i] = first;
        break;
      case dtype_rule::same_or_float32:
        if (type != *first && type != at::kFloat) {
          taken[i] = *first == at::kDouble ? at::kDouble : at::kFloat;
        }
        break;
      default: break;
    }
  }
  return taken;
}

}  // namespace thunderkittens
