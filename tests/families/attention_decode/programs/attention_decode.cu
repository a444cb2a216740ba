// attention_decode's kernel, which the mutants change. SHARED_KB: the architecture's, of which the
// form is.
#include "attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_decode_kernels;

template <class Cache>
using config =
    decode_config_of<bf16, decode_heads_of(HEAD_DIM, sizeof(Cache) == 1), Cache, SHARED_KB>;

void run(const attention_decode_params& p) {
  if (p.problem.cache.e4m3) return launch_decode<config<fp8e4m3>>(p, nullptr);
  launch_decode<config<bf16>>(p, nullptr);
}
