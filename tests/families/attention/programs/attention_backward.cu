// The kernels that the mutants change.
#include "attention_backward.h"

#include "kernels/attention/attention_backward_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

void run_attention_backward(const attention_backward_params& p) {
  constexpr int kWidth = CONFIGS == 0 ? 64 : 128;
  launch_attention_backward<attention_backward_config<bf16, kWidth, false>>(p, nullptr);
}
