#include "attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"
#include "kernels/attention_decode/cache_append_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_decode_kernels;

void run(const attention_decode_params& p) {
  launch_decode<decode_config<kittens::bf16, HEAD_DIM>>(p, nullptr);
}

void run(const cache_append_params& p, bool in_runs) {
  if (in_runs) return launch_append<kittens::bf16, 8>(p, nullptr);
  launch_append<kittens::bf16, 1>(p, nullptr);
}
