// add_rms_norm as torch ops.
//
//   sum = dropout(x) + residual,   y = sum · rstd · (weight + weight_offset),   rstd = 1 /
//   sqrt(mean(sum²) + eps)
//
// over the last dimension. `add_rms_norm_forward` also returns rstd.
#include "kernels/norm/torch/norm_by_name.hpp"

namespace thunderkittens {
namespace {

const norm_member kAddRmsNorm{norm_op::add_rms_norm,
                              {"add_rms_norm", kAddRmsNormForward},
                              {"add_rms_norm_backward", kAddRmsNormBackward}};

struct add_rms_norm_backward : gradients_of<"add_rms_norm">,
                               add_norm_backward_by_name<add_rms_norm_backward, kAddRmsNorm> {
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
};

struct add_rms_norm : add_norm_by_name<add_rms_norm, kAddRmsNorm> {
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
  static constexpr result_list results{like("y", "x"), kSumResult, statistics("rstd")};
  static constexpr size_t kPlain = 4;
};

const register_ops<add_rms_norm, add_rms_norm_backward> registered_add_rms_norm;

}  // namespace
}  // namespace thunderkittens
