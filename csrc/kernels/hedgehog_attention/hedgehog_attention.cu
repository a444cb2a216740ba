// hedgehog attention on every architecture: enters the launcher in the table.
#include "kernels/hedgehog_attention/hedgehog_attention.h"
#include "kernels/hedgehog_attention/hedgehog_attention_generic_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const hedgehog_attention_params& p, kittens::host::stream s) {
  switch (p.problem.type) {
    case dtype::float16: return launch_hedgehog_attention_generic<half>(p, s);
    case dtype::bfloat16: return launch_hedgehog_attention_generic<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("hedgehog_attention: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kHedgehogAttention, launch);

}  // namespace
}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
