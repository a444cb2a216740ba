// attention, backward: picks the configuration, and enters the launcher in the table.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const attention_backward_params& p, kittens::host::stream s) {
  const attention_backward_layout layout(p, kittens::host::kernel_kind::specialised);
  const auto with_type = [&]<class T>(T) {
    kittens::host::dispatch<64, 128, 256>("head_dim", layout.width, [&]<int D> {
      constexpr bool kAdds = D <= 128;
      if (p.softcap > 0) {
        launch_attention_backward<attention_backward_config<T, D, true, kAdds>>(p, layout, s);
      } else if (layout.adds_dq) {
        launch_attention_backward<attention_backward_config<T, D, false, kAdds>>(p, layout, s);
      } else {
        launch_attention_backward<attention_backward_config<T, D, false, false>>(p, layout, s);
      }
    });
  };
  switch (p.type) {
    case dtype::float16: return with_type(half{});
    case dtype::bfloat16: return with_type(bf16{});
    case dtype::float32: break;
  }
  throw kittens::host::error("attention_backward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kAttentionBackward, launch);

}  // namespace
}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
