// linear_gelu: enters the launcher in the table.
#include "kernels/mlp/linear_gelu_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {
namespace {

void launch_linear_gelu(const linear_gelu_params& p, kittens::host::stream s) {
  if (p.problem.type == dtype::float16) return launch_linear_gelu_type<half>(p, s);
  launch_linear_gelu_type<bf16>(p, s);
}

KITTENS_LAUNCHER(kLinearGelu, launch_linear_gelu);

}  // namespace
}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
