// mamba2, one token: picks the element type, and enters the launcher in the table.
#include "kernels/mamba2/mamba2_step_launch.cuh"

#include "kernels/mamba2/mamba2.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {
namespace {

void launch_step(const mamba2_step_params& params, kittens::host::stream s) {
  switch (params.problem.type) {
    case dtype::float16: return launch_step_of<half>(params, s);
    case dtype::bfloat16: return launch_step_of<bf16>(params, s);
    case dtype::float32: return launch_step_of<float>(params, s);
  }
}

KITTENS_LAUNCHER(kMamba2Step, launch_step);

}  // namespace
}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
