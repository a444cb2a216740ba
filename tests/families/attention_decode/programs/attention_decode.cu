#include "attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"
#include "kernels/attention_decode/cache_append_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_decode_kernels;

void run(const attention_decode_params& p) {
  if (p.problem.cache.e4m3) {
    return launch_decode<decode_config<kittens::bf16, HEAD_DIM, kittens::fp8e4m3>>(p, nullptr);
  }
  launch_decode<decode_config<kittens::bf16, HEAD_DIM>>(p, nullptr);
}

void run(const cache_append_params& p, bool in_runs) {
  using kittens::bf16, kittens::fp8e4m3;
  if (p.problem.cache.e4m3) {
    if (in_runs) return launch_append<bf16, 8, fp8e4m3>(p, nullptr);
    return launch_append<bf16, 1, fp8e4m3>(p, nullptr);
  }
  if (in_runs) return launch_append<bf16, 8, bf16>(p, nullptr);
  launch_append<bf16, 1, bf16>(p, nullptr);
}
