// based_attention: picks the pass, and enters the launcher in the table.
#include "kernels/based_attention/based_attention.h"
#include "kernels/based_attention/based_attention_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {
namespace {

template <class T>
void launch_of(const based_attention_params& p, kittens::host::stream s) {
  using enum based_attention_pass;
  switch (p.pass) {
    case forward: return launch_based_attention<T, forward>(p, s);
    case dq: return launch_based_attention<T, dq>(p, s);
    case dk_dv: return launch_based_attention<T, dk_dv>(p, s);
  }
}

void launch(const based_attention_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_of<half>(p, s);
    case dtype::bfloat16: return launch_of<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("based_attention: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kBasedAttention, launch);

}  // namespace
}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
