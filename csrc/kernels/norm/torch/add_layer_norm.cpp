// add_layer_norm as torch ops.
//
//   sum = dropout(x) + residual,   y = (sum − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var +
//   eps)
//
// over the last dimension. `add_layer_norm_forward` also returns the statistics of the sum.
#include "binding/autocast.h"
#include "binding/op.h"
#include "kernels/norm/torch/norm_by_name.hpp"

namespace thunderkittens {
namespace {

const kernel kAddLayerNormForwardKernel("add_layer_norm", kAddLayerNormForward);
const kernel kAddLayerNormBackwardKernel("add_layer_norm_backward", kAddLayerNormBackward);
const norm_member kAddLayerNorm{norm_op::add_layer_norm, kAddLayerNormForwardKernel,
                                kAddLayerNormBackwardKernel,
                                /*centred=*/true};

struct add_layer_norm_backward : add_norm_backward_by_name<add_layer_norm_backward> {
  static constexpr const norm_member& member = kAddLayerNorm;
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
};

struct add_layer_norm : add_norm_by_name<add_layer_norm> {
  static constexpr const norm_member& member = kAddLayerNorm;
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
};

const register_ops<add_layer_norm, add_layer_norm_backward> registered_add_layer_norm;
const register_promotion<add_layer_norm> registered_add_layer_norm_promotion;

}  // namespace
}  // namespace thunderkittens
