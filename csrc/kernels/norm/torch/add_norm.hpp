// What add_layer_norm and add_rms_norm share.
//
//   sum = dropout(x) + residual,   y = norm(sum)
#pragma once

#include <tuple>

#include "binding/describe.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {

// The sum as it is returned, and saved: without gradient where x and residual need none.
inline constexpr result kSum{
    .name = "sum", .rule = result_rule::like, .like = "residual", .depends_on = {"x", "residual"}};

// Raise what the descriptions do not.
void check_dropout(const char* op, const Tensor& x, double p, const optional_tensor& seed);
void check_sum_gradient(const char* op, const optional_tensor& dsum, const Tensor& sum);

// The seed to use: none where nothing is dropped, the one given, or one from torch's generator,
// drawn on x's device, so that a CUDA graph draws a new one at each replay.
optional_tensor seed_of(const Tensor& x, double p, bool training, const optional_tensor& seed);

// The gradients, by `call` of a backward, whose last arguments are seed and needs. dx and dresidual
// are equal where nothing is dropped and the dtypes agree: then the latter is asked for alone, and
// no tensor is written twice.
auto add_norm_gradients(const auto& call, const Tensor& dy, const optional_tensor& dsum,
                        const Tensor& sum, const auto&... rest) {
  std::tuple others(rest...);
  auto& needs = std::get<sizeof...(rest) - 1>(others);
  const optional_tensor& seed = std::get<sizeof...(rest) - 2>(others);
  const bool one_for_both = needs[0] && !seed && dy.scalar_type() == sum.scalar_type();
  if (one_for_both) {
    needs[0] = false;
    needs[1] = true;
  }
  auto gradients =
      std::apply([&](const auto&... other) { return call(dy, dsum, sum, other...); }, others);
  if (one_for_both) gradients[0] = gradients[1];
  return gradients;
}

}  // namespace thunderkittens
