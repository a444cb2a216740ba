// hedgehog attention, one token: enters the launcher in the table.
#include "kernels/hedgehog_attention/hedgehog_attention.h"
#include "kernels/hedgehog_attention/hedgehog_attention_step_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch_step(const hedgehog_attention_step_params& p, kittens::host::stream s) {
  switch (p.problem.type) {
    case dtype::float32: return launch_hedgehog_step<float>(p, s);
    case dtype::float16: return launch_hedgehog_step<half>(p, s);
    case dtype::bfloat16: return launch_hedgehog_step<bf16>(p, s);
  }
}

KITTENS_LAUNCHER(kHedgehogAttentionStep, launch_step);

}  // namespace
}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
