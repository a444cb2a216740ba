// based_attention: picks the configuration, and enters the launcher in the table.
#include "kernels/based_attention/based_attention.h"
#include "kernels/based_attention/based_attention_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const based_attention_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_all<half>(p, s);
    case dtype::bfloat16: return launch_all<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("based_attention: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kBasedAttention, launch);

}  // namespace
}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
