// attention, backward: picks the configuration, and enters the launcher in the table.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
namespace {

template <class T, size_t I, bool Capped, bool AddsDq>
void launch_config(const attention_backward_params& p, const attention_backward_layout& layout,
                   kittens::host::stream s) {
  constexpr attention_backward_form form = kBackwardForms[I];
  using config = attention_backward_config<T, form.head_dim, Capped, AddsDq, form.value_dim>;
  launch_attention_backward<config>(p, layout, s);
}

// By form I of the table, or the first one behind it that takes the call.
template <class T, size_t I = 0>
void launch_form(const attention_backward_params& p, const attention_backward_layout& layout,
                 kittens::host::stream s) {
  constexpr attention_backward_form form = kBackwardForms[I];
  if constexpr (I + 1 < kBackwardFormCount) {
    if (!form.takes(p.head_dim, p.value_dim, p.softcap > 0)) {
      return launch_form<T, I + 1>(p, layout, s);
    }
  }
  constexpr bool kAdds = form.head_dim <= 128;
  if constexpr (form.capped) {
    if (p.softcap > 0) return launch_config<T, I, true, kAdds>(p, layout, s);
  }
  if constexpr (kAdds) {
    if (layout.adds_dq) return launch_config<T, I, false, true>(p, layout, s);
  }
  launch_config<T, I, false, false>(p, layout, s);
}

void launch(const attention_backward_params& p, kittens::host::stream s) {
  const attention_backward_layout layout(p, kittens::host::kernel_kind::specialised);
  switch (p.type) {
    case dtype::float16: return launch_form<half>(p, layout, s);
    case dtype::bfloat16: return launch_form<bf16>(p, layout, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("attention_backward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kAttentionBackward, launch);

}  // namespace
}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
