// attention, backward: picks the configuration of the generic kernel, and enters its launcher in
// the table.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward_generic_launch.cuh"
#include "kittens/host/block_shared.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
namespace {

template <class T>
void launch_width(const attention_backward_params& p, kittens::host::stream s) {
  const attention_backward_layout layout(p, kittens::host::kernel_kind::generic);
  kittens::host::dispatch<64, 128, 256>("head_dim", layout.width, [&]<int D> {
    kittens::host::for_block_shared_kb([&]<int Kb> {
      using capped = attention_backward_generic_config<T, D, true, Kb>;
      using plain = attention_backward_generic_config<T, D, false, Kb>;
      if (p.softcap > 0) return launch_attention_backward_generic<capped>(p, layout, s);
      launch_attention_backward_generic<plain>(p, layout, s);
    });
  });
}

void launch(const attention_backward_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_width<half>(p, s);
    case dtype::bfloat16: return launch_width<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("attention_backward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kAttentionBackward, launch);

}  // namespace
}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
