// based_attention for Hopper: picks the pass, and enters the launcher in the table.
#include "kernels/based_attention/based_attention.h"
#include "kernels/based_attention/based_attention_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const based_attention_params& p, kittens::host::stream s) {
  with_type_and_pass(
      p, [&]<class T, based_attention_pass Pass>() { launch_based_attention<T, Pass>(p, s); });
}

KITTENS_LAUNCHER(kBasedAttention, launch);

}  // namespace
}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
