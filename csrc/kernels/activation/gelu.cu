// gelu: launches, and enters the launchers in the table.
#include "kernels/activation/activation.h"
#include "kernels/activation/elementwise_launch.cuh"

namespace thunderkittens::activation_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::stream;

void launch_forward(const gelu_forward_params& p, stream s) {
  if (p.function == activation::gelu_tanh) {
    launch_elementwise<plain_forward, gelu_tanh>(operands(p), p.type, s);
  } else {
    launch_elementwise<plain_forward, gelu_erf>(operands(p), p.type, s);
  }
}

void launch_backward(const gelu_backward_params& p, stream s) {
  if (p.function == activation::gelu_tanh) {
    launch_elementwise<plain_backward, gelu_tanh>(operands(p), p.type, s);
  } else {
    launch_elementwise<plain_backward, gelu_erf>(operands(p), p.type, s);
  }
}

KITTENS_LAUNCHER(kGeluForward, launch_forward);
KITTENS_LAUNCHER(kGeluBackward, launch_backward);

}  // namespace
}  // namespace thunderkittens::activation_kernels::inline KITTENS_TARGET
