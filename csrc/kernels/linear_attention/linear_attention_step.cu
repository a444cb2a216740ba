// One token of linear attention: picks the configuration, and enters the launcher in the table.
#include "kernels/linear_attention/linear_attention_step.h"

#include "kernels/linear_attention/linear_attention_step_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch_any(const linear_attention_step_params& params, kittens::host::stream s) {
  switch (params.problem.type) {
    case dtype::float32: return launch_step_of<float>(params, s);
    case dtype::float16: return launch_step_of<half>(params, s);
    case dtype::bfloat16: return launch_step_of<bf16>(params, s);
  }
}

KITTENS_LAUNCHER(kLinearAttentionStep, launch_any);

}  // namespace
}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
