// layer_norm as torch ops.
//
//   y = (x − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var + eps),   over the last dimension
//
// `layer_norm` keeps no statistics; `layer_norm_forward` also returns mean and rstd
// [x.shape[:-1]] in float32 (float64 for float64), for `layer_norm_backward`. Autocast gives no
// dtype: mixed dtypes (float32 weights with 16-bit x) are computed in float32 and rounded once.
#include "kernels/norm/torch/norm_by_name.hpp"

namespace thunderkittens {
namespace {

const norm_member kLayerNorm{norm_op::layer_norm,
                             {"layer_norm", kLayerNormForward},
                             {"layer_norm_backward", kLayerNormBackward}};

struct layer_norm_backward : gradients_of<"layer_norm">,
                             norm_backward_by_name<layer_norm_backward, kLayerNorm> {
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*,N"),
      tensor("x", dtype_rule::same, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")),
      optional(tensor("bias", dtype_rule::same_or_float32, "N")).as_constant(),
      tensor("mean", dtype_rule::statistics, "*").as_constant(),
      tensor("rstd", dtype_rule::statistics, "*").as_constant(),
      needs<3>(),
  };
  static constexpr result_list results{like("dx", "x"), like("dweight", "weight"),
                                       like("dbias", "bias")};
};

struct layer_norm : norm_by_name<layer_norm, kLayerNorm> {
  using backward = layer_norm_backward;
  static constexpr const char* name = "layer_norm";
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,N"),
      optional(tensor("weight", dtype_rule::same_or_float32, "N")).otherwise("None"),
      optional(tensor("bias", dtype_rule::same_or_float32, "N")).otherwise("None"),
      number("eps", 0.0).otherwise("1e-5"),
  };
  static constexpr result_list results{like("y", "x"), statistics("mean"), statistics("rstd")};
  static constexpr size_t kReturned = 1;
};

const register_ops<layer_norm, layer_norm_backward> registered_layer_norm;

}  // namespace
}  // namespace thunderkittens
