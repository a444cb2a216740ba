// add_rms_norm as torch ops.
//
//   sum = dropout(x) + residual,   y = sum · rstd · (weight + weight_offset),   rstd = 1 /
//   sqrt(mean(sum²) + eps)
//
// over the last dimension. `add_rms_norm_forward` also returns rstd.
#include "binding/autocast.h"
#include "binding/op.h"
#include "kernels/norm/torch/add_norm.hpp"

namespace thunderkittens {
namespace {

const kernel kAddRmsNormForwardKernel("add_rms_norm", kAddRmsNormForward);
const kernel kAddRmsNormBackwardKernel("add_rms_norm_backward", kAddRmsNormBackward);
const norm_member kAddRmsNorm{norm_op::add_rms_norm, kAddRmsNormForwardKernel,
                              kAddRmsNormBackwardKernel,
                              /*centred=*/false};

struct add_rms_norm_backward {
  static constexpr const char* name = "add_rms_norm_backward";
  static constexpr const char* differentiates = "add_rms_norm";
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*,N"),
      optional(tensor("dsum", dtype_rule::same_or_float32, "*,N")),
      tensor("sum", dtype_rule::same_or_float32, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")),
      tensor("rstd", dtype_rule::statistics, "*").as_constant(),
      number("weight_offset"),
      number("dropout_p", 0.0),
      optional(tensor("seed")),
      needs<3>(),
  };
  static constexpr result_list results{like("dx", "dy"), like("dresidual", "sum"),
                                       like("dweight", "weight")};

  static void check_options(const Tensor& dy, const optional_tensor& dsum, const Tensor& sum,
                            const optional_tensor&, const Tensor&, double, double dropout_p,
                            const optional_tensor& seed, std::array<bool, 3>) {
    check_sum_gradient(name, dsum, sum);
    check_dropout(name, dy, dropout_p, seed);
  }

  static std::array<Tensor, 3> compute(const Tensor& dy, const optional_tensor& dsum,
                                       const Tensor& sum, const optional_tensor& weight,
                                       const Tensor& rstd, double weight_offset, double dropout_p,
                                       const optional_tensor& seed, std::array<bool, 3> needs) {
    const auto g = norm_backward(kAddRmsNorm, {.dy = dy,
                                               .dsum = dsum,
                                               .x = sum,
                                               .weight = weight,
                                               .bias = kNoTensor,
                                               .mean = kUndefined,
                                               .rstd = rstd,
                                               .needs = {needs[0], needs[1], needs[2], false},
                                               .weight_offset = weight_offset,
                                               .dropout_p = dropout_p,
                                               .seed = seed});
    return {g[kDx], g[kDresidual], g[kDweight]};
  }
};

struct add_rms_norm {
  using backward = add_rms_norm_backward;
  static constexpr const char* name = "add_rms_norm";
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,N"),
      tensor("residual", dtype_rule::same_or_float32, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")).otherwise("None"),
      optional(number("eps", 0.0)).otherwise("None"),
      number("weight_offset").otherwise("0.0"),
      word("casting", "llama", "gemma").otherwise("\"llama\""),
      number("dropout_p", 0.0).otherwise("0.0"),
      boolean("training").otherwise("True"),
      optional(tensor("seed")).otherwise("None"),
  };
  static constexpr result_list results{like("y", "x"), kSum, statistics("rstd")};
  static constexpr size_t kReturned = 2, kPlain = 4;
  static constexpr bool kRandom = true;

  static void check_options(const Tensor& x, const Tensor&, const optional_tensor&,
                            std::optional<double>, double, std::string_view, double dropout_p, bool,
                            const optional_tensor& seed) {
    check_dropout(name, x, dropout_p, seed);
  }

  static auto before(const auto& next, const Tensor& x, const Tensor& residual,
                     const optional_tensor& weight, std::optional<double> eps, double weight_offset,
                     std::string_view casting, double dropout_p, bool training,
                     const optional_tensor& seed) {
    return next(x, residual, weight, eps, weight_offset, casting, dropout_p, training,
                seed_of(x, dropout_p, training, seed));
  }

  static std::array<Tensor, 3> compute(const Tensor& x, const Tensor& residual,
                                       const optional_tensor& weight, std::optional<double> eps,
                                       double weight_offset, std::string_view casting,
                                       double dropout_p, bool training, const optional_tensor& seed,
                                       bool statistics) {
    const auto r = norm_forward(kAddRmsNorm,
                                {.x = x,
                                 .residual = residual,
                                 .weight = weight,
                                 .bias = kNoTensor,
                                 .eps = rms_eps(eps, x),
                                 .weight_offset = weight_offset,
                                 .round_first = casting == kRoundFirst,
                                 .dropout_p = dropout_p,
                                 .seed = seed_of(x, dropout_p, training, seed)},
                                statistics);
    return {r.y, r.sum, r.rstd};
  }

  static std::array<Tensor, 3> differentiate(const auto& call, const auto&... args) {
    return add_norm_gradients(call, args...);
  }
};

const register_ops<add_rms_norm, add_rms_norm_backward> registered_add_rms_norm;
const register_promotion<add_rms_norm> registered_add_rms_norm_promotion;

}  // namespace
}  // namespace thunderkittens
