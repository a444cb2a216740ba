// The kernel that the mutants change, for one head dimension.
#include "attention.h"

#include "kernels/attention/attention_launch.cuh"

using namespace thunderkittens;

void run_attention(const attention_forward_params& p) {
  if (p.causal) {
    launch_attention_forward<attention_forward_config<bf16, HEAD_DIM, true>>(p, nullptr);
  } else {
    launch_attention_forward<attention_forward_config<bf16, HEAD_DIM, false>>(p, nullptr);
  }
}
