// Where GENERIC is 1, the generic kernel; else that for Hopper.
#include "linear_attention.h"

#include <type_traits>

#if GENERIC
#include "kernels/linear_attention/linear_attention_generic_launch.cuh"
#else
#include "kernels/linear_attention/linear_attention_launch.cuh"
#endif

using namespace thunderkittens::linear_attention_kernels;

namespace {

template <int Width, bool Reverse>
void run_width(const thunderkittens::linear_attention_params& p) {
#if GENERIC
  launch_linear_attention_generic<kittens::bf16, Width, Reverse>(p, nullptr);
#else
  constexpr int kConsumers = Width / 64;
  const bool weighted = p.k_weights || p.o_weights || p.skip || p.own_scores;
  const auto launch =
      weighted ? launch_linear_attention<kittens::bf16, Width, kConsumers, Reverse, true>
               : launch_linear_attention<kittens::bf16, Width, kConsumers, Reverse, false>;
  launch(p, nullptr);
#endif
}

}  // namespace

void run(const thunderkittens::linear_attention_params& p) {
#if !GENERIC
  if (p.steps.dt != nullptr) return launch_with_gates(p, nullptr);
#endif
  if (p.values <= 64) {
    p.reverse ? run_width<64, true>(p) : run_width<64, false>(p);
  } else {
    p.reverse ? run_width<128, true>(p) : run_width<128, false>(p);
  }
}
