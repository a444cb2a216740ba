// Dropout by a counter-based generator: what becomes of element i follows from the seed and i
// alone, so the backward makes the same mask again, and so does any other launch shape.
//
// Philox's counter is i / 4, its key the seed, and word i % 4 of its four is element i's number.
#pragma once

#include <kittens.cuh>

#include "kernels/norm/norm.h"
#include "kittens/ops/random.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

using namespace kittens;

// The four numbers of elements 4 · quad, …
KITTENS_DEVICE four_words dropout_numbers(uint64_t seed, uint64_t quad) {
  return philox4x32(seed, {{uint32_t(quad), uint32_t(quad >> 32), 0, 0}});
}

// What elements are multiplied by.
struct dropout_mask {
  bool drops;
  uint64_t seed;
  uint32_t drop_below;
  float scale;

  KITTENS_DEVICE explicit dropout_mask(const dropout_params& p)
      : drops(p.seed != nullptr),
        seed(drops ? uint64_t(arch::load_global(p.seed)) : 0),
        drop_below(p.drop_below),
        scale(p.scale) {}

  // Of a run of neighbours, the first of them element `first`, a multiple of N.
  template <int N>
  KITTENS_DEVICE void factors(float (&factor)[N], int64_t first) const {
    if constexpr (N == 1) {
      const four_words numbers = dropout_numbers(seed, uint64_t(first) / 4);
      factor[0] = numbers.at(first) >= drop_below ? scale : 0.0f;
    } else {
      static_assert(N % 4 == 0);
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const four_words numbers = dropout_numbers(seed, uint64_t(first + i) / 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) factor[i + j] = numbers.word[j] >= drop_below ? scale : 0.0f;
      }
    }
  }

  // The same of four neighbours, the first of them any element.
  KITTENS_DEVICE void factors_anywhere(float (&factor)[4], int64_t first) const {
    const int skipped = int(first & 3);
    if (skipped == 0) return factors(factor, first);
    const four_words low = dropout_numbers(seed, uint64_t(first) / 4);
    const four_words high = dropout_numbers(seed, uint64_t(first) / 4 + 1);
    uint32_t word[7] = {low.word[0],  low.word[1],  low.word[2], low.word[3],
                        high.word[0], high.word[1], high.word[2]};
#pragma unroll
    for (int i = 0; i < 6; ++i) word[i] = skipped & 1 ? word[i + 1] : word[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      factor[i] = (skipped & 2 ? word[i + 2] : word[i]) >= drop_below ? scale : 0.0f;
    }
  }
};

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
