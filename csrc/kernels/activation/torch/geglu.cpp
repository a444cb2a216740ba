// geglu as torch ops. What they compute is in activation.hpp.
//
//   y = gelu(gate) · up,   gelu(x) = x · Φ(x), or its tanh form
//
// 16-bit tensors are computed in float32 and rounded once; under autocast dtypes that differ are
// promoted.
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;

const kernel kGegluForwardKernel("geglu", kGegluForward);
const kernel kGegluBackwardKernel("geglu_backward", kGegluBackward);

struct geglu_backward : gradients_of<"geglu">,
                        gated_backward<geglu_backward, kGegluBackwardKernel> {
  static constexpr auto arguments = kGatedBackward + kApproximate;
};

struct geglu : gated<geglu, kGegluForwardKernel> {
  using backward = geglu_backward;
  static constexpr const char* name = "geglu";
  static constexpr auto arguments = kGated + kApproximate;
};

const register_ops<geglu, geglu_backward> registered_geglu;

}  // namespace
}  // namespace thunderkittens
