// One call of linear_cross_entropy, and what computes it.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {

using at::Tensor;
using optional_tensor = std::optional<Tensor>;
using three_tensors = std::array<Tensor, 3>;
using four_tensors = std::array<Tensor, 4>;

struct linear_call {
  const Tensor &x, &weight, &targets;
  const optional_tensor& bias;
  int64_t ignore_index;
  std::string_view reduction;
  double label_smoothing, z_loss;
  std::optional<int64_t> chunk_rows = {};  // empty: default_chunk_rows

  loss_options options() const {
    return {"linear_cross_entropy", ignore_index, reduction, label_smoothing, z_loss};
  }
};

// needs: of x, weight, bias. The loss, and the gradients as if that of the loss were 1; undefined
// where they are not wanted.
four_tensors linear_cross_entropy_forward(const linear_call& c, std::array<bool, 3> needs);
// The gradients of a call whose reduction is "none": dloss [...].
three_tensors linear_cross_entropy_backward(const linear_call& c, const Tensor& dloss,
                                            std::array<bool, 3> needs);

}  // namespace thunderkittens
