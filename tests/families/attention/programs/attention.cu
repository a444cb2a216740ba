// The kernels that the mutants change.
#include "attention.h"

#include "kernels/attention/attention_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

void run_attention(const attention_forward_params& p) {
#if CONFIGS == 0
  launch_attention_forward<attention_forward_config<bf16, 64, false, true>>(p, nullptr);
#elif CONFIGS == 1
  if (p.softcap > 0) {
    launch_attention_forward<attention_forward_config<half, 64, true, true>>(p, nullptr);
  } else if (p.head_dim <= 80) {
    launch_attention_forward<attention_forward_config<half, 80, false, true>>(p, nullptr);
  } else {
    launch_attention_forward<attention_forward_config<bf16, 192, false, true>>(p, nullptr);
  }
#else
  launch_attention_forward<attention_forward_config<bf16, 64, false, false>>(p, nullptr);
#endif
}
