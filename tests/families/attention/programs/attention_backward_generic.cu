// The backward's generic kernel, which the mutants change. SHARED_KB: the architecture's, of which
// the forms are.
#include "attention_backward.h"
#include "kernels/attention/attention_backward_generic_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

const bool kAddsDq = true;

template <class T, int HeadDim, bool Capped>
void run(const attention_backward_params& p) {
  using config = attention_backward_generic_config<T, HeadDim, Capped, SHARED_KB>;
  launch_attention_backward_generic<config>(p, attention_backward_layout(p, kAddsDq), nullptr);
}
template <class T, int HeadDim>
void run(const attention_backward_params& p) {
  p.softcap > 0 ? run<T, HeadDim, true>(p) : run<T, HeadDim, false>(p);
}

void run_attention_backward(const attention_backward_params& p) {
#if CONFIGS == 0
  run<bf16, 64>(p);
#elif CONFIGS == 1
  run<half, 128>(p);
#else
  run<bf16, 256>(p);
#endif
}
