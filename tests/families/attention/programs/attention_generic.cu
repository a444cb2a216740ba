// The generic kernel, which the mutants change: where CONFIGS is 0, bf16 of head dimension 64;
// where it is 1, fp16 of head dimensions 96 and 256.
#include "attention.h"
#include "kernels/attention/attention_generic_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

void run_attention(const attention_forward_params& p) {
#if CONFIGS == 0
  launch_attention_generic<attention_generic_config<bf16, 0>>(p, nullptr);
#else
  if (p.head_dim <= 96) {
    launch_attention_generic<attention_generic_config<half, 1>>(p, nullptr);
  } else {
    launch_attention_generic<attention_generic_config<half, 3>>(p, nullptr);
  }
#endif
}
