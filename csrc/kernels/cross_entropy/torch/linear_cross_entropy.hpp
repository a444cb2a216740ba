// One call of linear_cross_entropy, and its ops below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

namespace thunderkittens {

using at::Tensor;
using optional_tensor = std::optional<Tensor>;
using three_tensors = std::tuple<Tensor, Tensor, Tensor>;
using four_tensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

struct linear_call {
  const Tensor &x, &weight, &targets;
  const optional_tensor& bias;
  int64_t ignore_index;
  std::string_view reduction;
  double label_smoothing, z_loss;
  std::optional<int64_t> chunk_rows;  // empty: default_chunk_rows
};

// needs: of x, weight, bias. The gradients are as if that of the loss were 1.
Tensor linear_cross_entropy(const linear_call& c);
four_tensors linear_cross_entropy_forward(const linear_call& c, std::array<bool, 3> needs);
// Of a call whose reduction is "none": dloss, loss [...].
three_tensors linear_cross_entropy_backward(const linear_call& c, const Tensor& dloss,
                                            const Tensor& loss, std::array<bool, 3> needs);

// Raise unless the call is allowed; the first two look at layouts alone.
void check_dense_linear(const linear_call& c);
void check_dense_linear_backward(const linear_call& c, const Tensor& dloss, const Tensor& loss);
void check_linear(const linear_call& c);
void check_linear_backward(const linear_call& c, const Tensor& dloss, const Tensor& loss);

}  // namespace thunderkittens
