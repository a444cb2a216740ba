// The kernels that the mutants change.
#include "attention_backward.h"

#include "kernels/attention/attention_backward_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

const bool kAddsDq = CONFIGS < 2;

template <class T, int HeadDim, bool Capped>
void run(const attention_backward_params& p) {
  using config = attention_backward_config<T, HeadDim, Capped, (CONFIGS < 2)>;
  launch_attention_backward<config>(p, attention_backward_layout(p, kAddsDq), nullptr);
}

void run_attention_backward(const attention_backward_params& p) {
#if CONFIGS == 0
  const bool narrow = attention_backward_layout(p, kAddsDq).width == 64;
  narrow ? run<bf16, 64, false>(p) : run<bf16, 96, false>(p);
#elif CONFIGS == 1
  run<half, 128, true>(p);
#elif CONFIGS == 2
  p.softcap > 0 ? run<bf16, 256, true>(p) : run<bf16, 256, false>(p);
#else
  const bool narrow = attention_backward_layout(p, kAddsDq).width == 64;
  narrow ? run<bf16, 64, false>(p) : run<bf16, 128, false>(p);
#endif
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
