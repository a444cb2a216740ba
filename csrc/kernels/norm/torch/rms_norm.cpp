// rms_norm as torch ops.
//
//   y = x · rstd · (weight + weight_offset),   rstd = 1 / sqrt(mean(x²) + eps),   over the last
//   dimension
//
// `rms_norm_forward` also returns rstd [x.shape[:-1]] in float32 (float64 for float64), for
// `rms_norm_backward`.
#include "binding/autocast.h"
#include "binding/op.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {
namespace {

const kernel kRmsNormForwardKernel("rms_norm", kRmsNormForward);
const kernel kRmsNormBackwardKernel("rms_norm_backward", kRmsNormBackward);
const norm_member kRmsNorm{norm_op::rms_norm, kRmsNormForwardKernel, kRmsNormBackwardKernel,
                           /*centred=*/false};

struct rms_norm_backward {
  static constexpr const char* name = "rms_norm_backward";
  static constexpr const char* differentiates = "rms_norm";
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*,N"),
      tensor("x", dtype_rule::same, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")),
      tensor("rstd", dtype_rule::statistics, "*").as_constant(),
      number("weight_offset"),
      needs<2>(),
  };
  static constexpr result_list results{like("dx", "x"), like("dweight", "weight")};

  static std::array<Tensor, 2> compute(const Tensor& dy, const Tensor& x,
                                       const optional_tensor& weight, const Tensor& rstd,
                                       double weight_offset, std::array<bool, 2> needs) {
    const auto g = norm_backward(kRmsNorm, {.dy = dy,
                                            .dsum = kNoTensor,
                                            .x = x,
                                            .weight = weight,
                                            .bias = kNoTensor,
                                            .mean = kUndefined,
                                            .rstd = rstd,
                                            .needs = {needs[0], false, needs[1], false},
                                            .weight_offset = weight_offset});
    return {g[kDx], g[kDweight]};
  }
};

struct rms_norm {
  using backward = rms_norm_backward;
  static constexpr const char* name = "rms_norm";
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")).otherwise("None"),
      optional(number("eps", 0.0)).otherwise("None"),
      number("weight_offset").otherwise("0.0"),
      word("casting", "llama", "gemma").otherwise("\"llama\""),
  };
  static constexpr result_list results{like("y", "x"), statistics("rstd")};
  static constexpr size_t kReturned = 1, kPlain = 3;

  static std::array<Tensor, 2> compute(const Tensor& x, const optional_tensor& weight,
                                       std::optional<double> eps, double weight_offset,
                                       std::string_view casting, bool statistics) {
    const auto r = norm_forward(kRmsNorm,
                                {.x = x,
                                 .residual = kNoTensor,
                                 .weight = weight,
                                 .bias = kNoTensor,
                                 .eps = rms_eps(eps, x),
                                 .weight_offset = weight_offset,
                                 .round_first = casting == kRoundFirst},
                                statistics);
    return {r.y, r.rstd};
  }
};

const register_ops<rms_norm, rms_norm_backward> registered_rms_norm;
const register_promotion<rms_norm> registered_rms_norm_promotion;

}  // namespace
}  // namespace thunderkittens
