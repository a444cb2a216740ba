// attention: picks the configuration, and enters the launcher in the table.
#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {
namespace {

// The widths that there are kernels for; others take the next one, and TMA fills up with zeros.
int64_t padded(int64_t width) {
  for (const int64_t d : {64, 96, 128, 192}) {
    if (width <= d) return d;
  }
  return 256;
}

void launch(const attention_forward_params& p, kittens::host::stream s) {
  const int64_t width = padded(std::max(p.head_dim, p.value_dim));
  const auto with_type = [&]<class T>(T) {
    kittens::host::dispatch<64, 96, 128, 192, 256>(
        "head_dim", width, [&]<int D> { launch_attention_forward<T, D>(p, s); });
  };
  switch (p.type) {
    case dtype::float16: return with_type(half{});
    case dtype::bfloat16: return with_type(bf16{});
    case dtype::float32: break;
  }
  throw kittens::host::error("attention_forward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kAttentionForward, launch);

}  // namespace
}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
