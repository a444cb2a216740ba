// The kernels that the mutants change.
#include "attention_backward.h"

#include "kernels/attention/attention_backward_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

void run_attention_backward(const attention_backward_params& p) {
#if CONFIGS == 0
  using config = attention_backward_config<bf16, 64, false>;
#elif CONFIGS == 1
  using config = attention_backward_config<half, 128, true>;
#else
  using config = attention_backward_config<bf16, 256, false>;
#endif
  launch_attention_backward<config>(p, attention_backward_layout(p), nullptr);
}
