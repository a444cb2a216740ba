// linear attention on every architecture: picks the generic kernel's configuration, and enters its
// launcher in the table.
#include "kernels/linear_attention/linear_attention.h"

#include "kernels/linear_attention/linear_attention_generic_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {
namespace {

template <class T>
void launch_of(const linear_attention_params& p, kittens::host::stream s) {
  kittens::host::dispatch<64, 128>("key width", p.keys <= 64 ? 64 : 128, [&]<int K> {
    const auto run = p.reverse ? launch_linear_attention_generic<T, K, true>
                               : launch_linear_attention_generic<T, K, false>;
    run(p, s);
  });
}

void launch(const linear_attention_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_of<half>(p, s);
    case dtype::bfloat16: return launch_of<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("linear_attention: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kLinearAttention, launch);

}  // namespace
}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
