// linear_gelu's backward: enters the launcher in the table.
#include "kernels/mlp/linear_gelu_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {
namespace {

void launch_linear_gelu_backward(const linear_gelu_backward_params& p, kittens::host::stream s) {
  if (p.problem.type == dtype::float16) return launch_linear_gelu_backward_type<half>(p, s);
  launch_linear_gelu_backward_type<bf16>(p, s);
}

KITTENS_LAUNCHER(kLinearGeluBackward, launch_linear_gelu_backward);

}  // namespace
}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
