// rms_norm as torch ops.
//
//   y = x · rstd · (weight + weight_offset),   rstd = 1 / sqrt(mean(x²) + eps),   over the last
//   dimension
//
// `rms_norm_forward` also returns rstd [x.shape[:-1]] in float32 (float64 for float64), for
// `rms_norm_backward`.
#include "kernels/norm/torch/norm_by_name.hpp"

namespace thunderkittens {
namespace {

const norm_member kRmsNorm{
    norm_op::rms_norm, {"rms_norm", kRmsNormForward}, {"rms_norm_backward", kRmsNormBackward}};

struct rms_norm_backward : gradients_of<"rms_norm">,
                           norm_backward_by_name<rms_norm_backward, kRmsNorm> {
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*,N"),
      tensor("x", dtype_rule::same, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")),
      tensor("rstd", dtype_rule::statistics, "*").as_constant(),
      number("weight_offset"),
      needs<2>(),
  };
  static constexpr result_list results{like("dx", "x"), like("dweight", "weight")};
};

struct rms_norm : norm_by_name<rms_norm, kRmsNorm> {
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
};

const register_ops<rms_norm, rms_norm_backward> registered_rms_norm;

}  // namespace
}  // namespace thunderkittens
