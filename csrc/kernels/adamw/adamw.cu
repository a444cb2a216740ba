// adamw: picks the configurations, and enters the launchers in the table.
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::stream;

void launch_adamw_norm(const adamw_norm_params& p, stream s) {
  switch (p.type) {
    case dtype::float32: return launch_norm<float>(p, s);
    case dtype::float16: return launch_norm<half>(p, s);
    case dtype::bfloat16: return launch_norm<bf16>(p, s);
  }
}

template <class P, class M>
void launch_with_moments(const adamw_update_params& p, stream s) {
  if constexpr (sizeof(P) == 2) {
    if (p.master_weights) return launch_update<P, M, true>(p, s);
  }
  launch_update<P, M, false>(p, s);
}

template <class P>
void launch_for(const adamw_update_params& p, stream s) {
  if (p.moments == dtype::bfloat16) {
    launch_with_moments<P, bf16>(p, s);
  } else {
    launch_with_moments<P, float>(p, s);
  }
}

void launch_adamw_update(const adamw_update_params& p, stream s) {
  switch (p.type) {
    case dtype::float32: return launch_for<float>(p, s);
    case dtype::float16: return launch_for<half>(p, s);
    case dtype::bfloat16: return launch_for<bf16>(p, s);
  }
}

KITTENS_LAUNCHER(kAdamwNorm, launch_adamw_norm);
KITTENS_LAUNCHER(kAdamwUpdate, launch_adamw_update);

}  // namespace
}  // namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET
