// Where GENERIC is 1, the generic kernel; else that for Hopper.
#include "based_attention.h"

#if GENERIC
#include "kernels/based_attention/based_attention_generic_launch.cuh"
#else
#include "kernels/based_attention/based_attention_launch.cuh"
#endif

using namespace thunderkittens::based_attention_kernels;

namespace {

template <thunderkittens::based_attention_pass Pass>
void run_pass(const thunderkittens::based_attention_params& p) {
#if GENERIC
  launch_based_attention_generic<kittens::bf16, Pass>(p, nullptr);
#else
  launch_based_attention<kittens::bf16, Pass>(p, nullptr);
#endif
}

}  // namespace

void run(const thunderkittens::based_attention_params& p) {
  using enum thunderkittens::based_attention_pass;
  const auto launch = p.pass == forward ? run_pass<forward>
                      : p.pass == dq    ? run_pass<dq>
                                        : run_pass<dk_dv>;
  launch(p);
}
