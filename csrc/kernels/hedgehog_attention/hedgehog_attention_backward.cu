// hedgehog attention on every architecture: enters the backward's launcher in the table.
#include "kernels/hedgehog_attention/hedgehog_attention.h"
#include "kernels/hedgehog_attention/hedgehog_attention_generic_backward_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const hedgehog_attention_backward_params& p, kittens::host::stream s) {
  switch (p.problem.forward.type) {
    case dtype::float16: return launch_hedgehog_attention_generic_backward<half>(p, s);
    case dtype::bfloat16: return launch_hedgehog_attention_generic_backward<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error(
      "hedgehog_attention_backward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kHedgehogAttentionBackward, launch);

}  // namespace
}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
