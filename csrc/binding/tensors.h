// Torch's types as sources of ops name them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace thunderkittens {

using at::Tensor;
using c10::SymInt;
using optional_tensor = std::optional<Tensor>;
inline optional_tensor as_optional(const Tensor& t) {
  return t.defined() ? optional_tensor(t) : std::nullopt;
}
template <size_t Count>
using tensor_array = std::array<Tensor, Count>;

}  // namespace thunderkittens
