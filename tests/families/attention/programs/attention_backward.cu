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

void run_starts(const int* ends, int count, int length, int* starts) {
  const sequence_ends of{ends, /*is_int64=*/false};
  kittens::host::launch_programmatic(attention_backward_starts<kStartsThreads>,
                                     {{1}, {kStartsThreads}}, nullptr,
                                     attention_starts_arguments{.q = of,
                                                                .k = of,
                                                                .rows = length,
                                                                .keys = length,
                                                                .count = count,
                                                                .q_starts = starts,
                                                                .k_starts = starts});
}
