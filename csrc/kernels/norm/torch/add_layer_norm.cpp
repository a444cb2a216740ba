// add_layer_norm as torch ops.
//
//   sum = dropout(x) + residual,   y = (sum − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var +
//   eps)
//
// over the last dimension. `add_layer_norm_forward` also returns the statistics of the sum.
#include "kernels/norm/torch/norm_by_name.hpp"

namespace thunderkittens {
namespace {

const norm_member kAddLayerNorm{norm_op::add_layer_norm,
                                {"add_layer_norm", kAddLayerNormForward},
                                {"add_layer_norm_backward", kAddLayerNormBackward}};

struct add_layer_norm_backward : gradients_of<"add_layer_norm">,
                                 add_norm_backward_by_name<add_layer_norm_backward, kAddLayerNorm> {
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
};

struct add_layer_norm : add_norm_by_name<add_layer_norm, kAddLayerNorm> {
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
  static constexpr result_list results{like("y", "x"), kSumResult, statistics("mean"),
                                       statistics("rstd")};
  static constexpr size_t kPlain = 5;
};

const register_ops<add_layer_norm, add_layer_norm_backward> registered_add_layer_norm;

}  // namespace
}  // namespace thunderkittens
