#include "cache_append.h"

#include "kernels/attention_decode/cache_append_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_decode_kernels;

void run(const cache_append_params& p, bool in_runs) {
  using kittens::bf16, kittens::fp8e4m3;
  if (p.problem.cache.e4m3) {
    if (in_runs) return launch_append<bf16, 8, fp8e4m3>(p, nullptr);
    return launch_append<bf16, 1, fp8e4m3>(p, nullptr);
  }
  if (in_runs) return launch_append<bf16, 8, bf16>(p, nullptr);
  launch_append<bf16, 1, bf16>(p, nullptr);
}
