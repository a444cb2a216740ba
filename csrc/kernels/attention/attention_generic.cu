// attention: picks the configuration of the generic kernel, and enters its launcher in the table.
#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_generic_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
namespace {

// By form I of the table, or the first one behind it that takes the call.
template <class T, size_t I = 0>
void launch_form(const attention_forward_params& p, kittens::host::stream s) {
  if constexpr (I + 1 < kGenericFormCount) {
    if (!kGenericForms[I].takes(std::max(p.head_dim, p.value_dim))) {
      return launch_form<T, I + 1>(p, s);
    }
  }
  launch_attention_generic<attention_generic_config<T, I>>(p, s);
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
