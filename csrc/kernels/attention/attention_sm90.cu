// attention: picks the configuration, and enters the launcher in the table.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
namespace {

// By form I of the table, or the first one behind it that takes the call.
template <class T, size_t I = 0>
void launch_form(const attention_forward_params& p, kittens::host::stream s) {
  constexpr attention_form form = kForwardForms[I];
  if constexpr (I + 1 < kForwardFormCount) {
    if (!form.takes(p.head_dim, p.value_dim, p.softcap > 0)) {
      return launch_form<T, I + 1>(p, s);
    }
  }
  if constexpr (std::same_as<T, bf16> && form.reference == softmax_reference::fixed &&
                !form.capped) {
    if (p.lse == nullptr && p.sinks == nullptr) {
      using config =
          attention_forward_config<T, form.head_dim, form.capped, /*Sums=*/false, form.value_dim>;
      return launch_attention_forward<config>(p, s);
    }
  }
  using config =
      attention_forward_config<T, form.head_dim, form.capped, /*Sums=*/true, form.value_dim>;
  launch_attention_forward<config>(p, s);
}

void launch(const attention_forward_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_form<half>(p, s);
    case dtype::bfloat16: return launch_form<bf16>(p, s);
    case dtype::float32: break;
  }
  throw kittens::host::error("attention_forward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kAttentionForward, launch);

}  // namespace
}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
