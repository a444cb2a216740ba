// One token of based_attention: enters the launcher in the table.
#include "kernels/based_attention/based_attention_step_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch_any(const based_attention_step_params& params, kittens::host::stream s) {
  switch (params.problem.type) {
    case dtype::float32: return launch_based_step_of<float>(params, s);
    case dtype::float16: return launch_based_step_of<half>(params, s);
    case dtype::bfloat16: return launch_based_step_of<bf16>(params, s);
  }
}

KITTENS_LAUNCHER(kBasedAttentionStep, launch_any);

}  // namespace
}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
