// geglu: launches, and enters the launchers in the table.
#include "kernels/activation/activation.h"
#include "kernels/activation/elementwise_launch.cuh"

namespace thunderkittens::activation_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::stream;

void launch_forward(const gated_forward_params& p, stream s) {
  if (p.function == activation::gelu_tanh) {
    launch_elementwise<gated_forward, gelu_tanh>(operands(p), p.type, s);
  } else {
    launch_elementwise<gated_forward, gelu_erf>(operands(p), p.type, s);
  }
}

void launch_backward(const gated_backward_params& p, stream s) {
  if (p.function == activation::gelu_tanh) {
    launch_elementwise<gated_backward, gelu_tanh>(operands(p), p.type, s);
  } else {
    launch_elementwise<gated_backward, gelu_erf>(operands(p), p.type, s);
  }
}

KITTENS_LAUNCHER(kGegluForward, launch_forward);
KITTENS_LAUNCHER(kGegluBackward, launch_backward);

}  // namespace
}  // namespace thunderkittens::activation_kernels::inline KITTENS_TARGET
