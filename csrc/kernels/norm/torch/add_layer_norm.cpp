// add_layer_norm as torch ops.
//
//   sum = dropout(x) + residual,   y = (sum − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var +
//   eps)
//
// over the last dimension. `add_layer_norm_forward` also returns the statistics of the sum.
#include "binding/autocast.h"
#include "binding/op.h"
#include "kernels/norm/torch/add_norm.hpp"

namespace thunderkittens {
namespace {

const kernel kAddLayerNormForwardKernel("add_layer_norm", kAddLayerNormForward);
const kernel kAddLayerNormBackwardKernel("add_layer_norm_backward", kAddLayerNormBackward);
const norm_member kAddLayerNorm{norm_op::add_layer_norm, kAddLayerNormForwardKernel,
                                kAddLayerNormBackwardKernel,
                                /*centred=*/true};

struct add_layer_norm_backward {
  static constexpr const char* name = "add_layer_norm_backward";
  static constexpr const char* differentiates = "add_layer_norm";
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*,N"),
      optional(tensor("dsum", dtype_rule::same_or_float32, "*,N")),
      tensor("sum", dtype_rule::same_or_float32, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")),
      optional(tensor("bias", dtype_rule::same_or_float32, "N")).as_constant(),
      tensor("mean", dtype_rule::statistics, "*").as_constant(),
      tensor("rstd", dtype_rule::statistics, "*").as_constant(),
      number("dropout_p", 0.0),
      optional(tensor("seed")),
      needs<4>(),
  };
  static constexpr result_list results{like("dx", "dy"), like("dresidual", "sum"),
                                       like("dweight", "weight"), like("dbias", "bias")};

  static void check_options(const Tensor& dy, const optional_tensor& dsum, const Tensor& sum,
                            const optional_tensor&, const optional_tensor&, const Tensor&,
                            const Tensor&, double dropout_p, const optional_tensor& seed,
                            norm_needs) {
    check_sum_gradient(name, dsum, sum);
    check_dropout(name, dy, dropout_p, seed);
  }

  static norm_gradients compute(const Tensor& dy, const optional_tensor& dsum, const Tensor& sum,
                                const optional_tensor& weight, const optional_tensor& bias,
                                const Tensor& mean, const Tensor& rstd, double dropout_p,
                                const optional_tensor& seed, norm_needs needs) {
    return norm_backward(kAddLayerNorm, {.dy = dy,
                                         .dsum = dsum,
                                         .x = sum,
                                         .weight = weight,
                                         .bias = bias,
                                         .mean = mean,
                                         .rstd = rstd,
                                         .needs = needs,
                                         .dropout_p = dropout_p,
                                         .seed = seed});
  }
};

struct add_layer_norm {
  using backward = add_layer_norm_backward;
  static constexpr const char* name = "add_layer_norm";
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,N"),
      tensor("residual", dtype_rule::same_or_float32, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")).otherwise("None"),
      optional(tensor("bias", dtype_rule::same_or_float32, "N")).otherwise("None"),
      number("eps", 0.0).otherwise("1e-5"),
      number("dropout_p", 0.0).otherwise("0.0"),
      boolean("training").otherwise("True"),
      optional(tensor("seed")).otherwise("None"),
  };
  static constexpr result_list results{like("y", "x"), kSum, statistics("mean"),
                                       statistics("rstd")};
  static constexpr size_t kReturned = 2, kPlain = 5;
  static constexpr bool kRandom = true;

  static void check_options(const Tensor& x, const Tensor&, const optional_tensor&,
                            const optional_tensor&, double, double dropout_p, bool,
                            const optional_tensor& seed) {
    check_dropout(name, x, dropout_p, seed);
  }

  static auto before(const auto& next, const Tensor& x, const Tensor& residual,
                     const optional_tensor& weight, const optional_tensor& bias, double eps,
                     double dropout_p, bool training, const optional_tensor& seed) {
    return next(x, residual, weight, bias, eps, dropout_p, training,
                seed_of(x, dropout_p, training, seed));
  }

  static std::array<Tensor, 4> compute(const Tensor& x, const Tensor& residual,
                                       const optional_tensor& weight, const optional_tensor& bias,
                                       double eps, double dropout_p, bool training,
                                       const optional_tensor& seed, bool statistics) {
    const auto r = norm_forward(kAddLayerNorm,
                                {.x = x,
                                 .residual = residual,
                                 .weight = weight,
                                 .bias = bias,
                                 .eps = eps,
                                 .dropout_p = dropout_p,
                                 .seed = seed_of(x, dropout_p, training, seed)},
                                statistics);
    return {r.y, r.sum, r.mean, r.rstd};
  }

  static norm_gradients differentiate(const auto& call, const auto&... args) {
    return add_norm_gradients(call, args...);
  }
};

const register_ops<add_layer_norm, add_layer_norm_backward> registered_add_layer_norm;
const register_promotion<add_layer_norm> registered_add_layer_norm_promotion;

}  // namespace
}  // namespace thunderkittens
