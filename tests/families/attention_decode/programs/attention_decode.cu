// attention_decode's kernel, which the mutants change. SHARED_KB: the architecture's, of which the
// form is. By pairs wherever key heads are even, however few tiles there are.
#include "attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_decode_kernels;

template <class Cache, bool ByPairs>
void launch(const attention_decode_params& p) {
  constexpr decode_heads kHeads = decode_heads_of(HEAD_DIM, ByPairs, sizeof(Cache) == 1);
  launch_heads<bf16, kHeads, Cache, SHARED_KB>(p, nullptr);
}

void run(const attention_decode_params& p) {
  if (p.problem.cache.e4m3) return launch<fp8e4m3, false>(p);
  if (p.problem.key_heads % 2 == 0) return launch<bf16, true>(p);
  launch<bf16, false>(p);
}
