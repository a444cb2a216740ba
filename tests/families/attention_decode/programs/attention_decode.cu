#include "attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_decode_kernels;

void run(const attention_decode_params& p) {
  using kittens::bf16, kittens::fp8e4m3;
  if (p.problem.cache.e4m3) {
    return launch_decode<decode_config<bf16, HEAD_DIM, fp8e4m3>>(p, nullptr);
  }
  launch_decode<decode_config<bf16, HEAD_DIM>>(p, nullptr);
}
