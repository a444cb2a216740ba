// swiglu: launches, and enters the launchers in the table.
#include "kernels/activation/activation.h"
#include "kernels/activation/elementwise_launch.cuh"

namespace thunderkittens::activation_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::stream;

void launch_forward(const gated_forward_params& p, stream s) {
  launch_elementwise<gated_forward, silu>(operands(p), p.type, s);
}

void launch_backward(const gated_backward_params& p, stream s) {
  launch_elementwise<gated_backward, silu>(operands(p), p.type, s);
}

KITTENS_LAUNCHER(kSwigluForward, launch_forward);
KITTENS_LAUNCHER(kSwigluBackward, launch_backward);

}  // namespace
}  // namespace thunderkittens::activation_kernels::inline KITTENS_TARGET
