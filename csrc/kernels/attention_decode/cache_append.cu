// cache_append: picks the configuration, and enters the launcher in the table.
#include "kernels/attention_decode/attention_decode.h"
#include "kernels/attention_decode/cache_append_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {
namespace {

void launch_cache_append(const cache_append_params& p, kittens::host::stream s) {
  with_elements(p.problem.type, appends_in_runs(p), [&]<class T, int Run>() {
    if (p.problem.cache.e4m3) return launch_append<T, Run, fp8e4m3>(p, s);
    launch_append<T, Run, T>(p, s);
  });
}

KITTENS_LAUNCHER(kCacheAppend, launch_cache_append);

}  // namespace
}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
