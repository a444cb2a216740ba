// The backward's generic kernel, which the mutants change.
#include "attention_backward.h"
#include "kernels/attention/attention_backward_generic_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

void run_attention_backward(const attention_backward_params& p) {
#if CONFIGS == 0
  using config = attention_backward_generic_config<bf16, 64>;
#elif CONFIGS == 1
  using config = attention_backward_generic_config<half, 128>;
#else
  using config = attention_backward_generic_config<bf16, 256>;
#endif
  launch_attention_backward_generic<config>(p, attention_backward_layout(p), nullptr);
}
