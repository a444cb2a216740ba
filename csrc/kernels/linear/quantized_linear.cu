// quantized_linear on every architecture: picks the configuration, and enters the launcher in the
// table.
#include "kernels/linear/linear.h"

#include "kernels/linear/quantized_linear_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {
namespace {

void launch_quantized_linear(const linear_params& p, kittens::host::stream s) {
  if (p.problem.type == dtype::float16) return launch_quantized_type<half>(p, s);
  launch_quantized_type<bf16>(p, s);
}

KITTENS_LAUNCHER(kQuantizedLinear, launch_quantized_linear);

}  // namespace
}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
