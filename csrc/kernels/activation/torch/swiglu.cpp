// swiglu as torch ops. What they compute is in activation.hpp.
//
//   y = silu(gate) · up,   silu(x) = x · σ(x)
//
// 16-bit tensors are computed in float32 and rounded once; under autocast dtypes that differ are
// promoted.
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;

const kernel kSwigluForwardKernel("swiglu", kSwigluForward);
const kernel kSwigluBackwardKernel("swiglu_backward", kSwigluBackward);

struct swiglu_backward : gradients_of<"swiglu">,
                         gated_backward<swiglu_backward, kSwigluBackwardKernel> {
  static constexpr auto& arguments = kGatedBackward;
};

struct swiglu : gated<swiglu, kSwigluForwardKernel> {
  using backward = swiglu_backward;
  static constexpr const char* name = "swiglu";
  static constexpr auto& arguments = kGated;
};

const register_ops<swiglu, swiglu_backward> registered_swiglu;

}  // namespace
}  // namespace thunderkittens
