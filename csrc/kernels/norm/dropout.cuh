// Dropout by a counter-based generator: what becomes of element i follows from the seed and i
// alone, so the backward makes the same mask again, and so does any other launch shape.
//
// Philox 4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): its counter is i / 4, its key the seed, and word i % 4 of its four is element i's number.
#pragma once

#include <kittens.cuh>

#include "kernels/norm/norm.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kPhiloxRounds = 7;

struct four_words {
  uint32_t word[4];
};

// The generator's four numbers at `counter`.
KITTENS_DEVICE four_words philox(uint64_t seed, uint64_t counter) {
  uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  four_words c{{uint32_t(counter), uint32_t(counter >> 32), 0, 0}};
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c.word[0], b = uint64_t(0xCD9E8D57u) * c.word[2];
    c = {{uint32_t(b >> 32) ^ c.word[1] ^ key[0], uint32_t(b),
          uint32_t(a >> 32) ^ c.word[3] ^ key[1], uint32_t(a)}};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
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
      const four_words numbers = philox(seed, uint64_t(first) / 4);
      const int which = int(first & 3);
      const uint32_t low = which & 1 ? numbers.word[1] : numbers.word[0];
      const uint32_t high = which & 1 ? numbers.word[3] : numbers.word[2];
      factor[0] = (which & 2 ? high : low) >= drop_below ? scale : 0.0f;
    } else {
      static_assert(N % 4 == 0);
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const four_words numbers = philox(seed, uint64_t(first + i) / 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) factor[i + j] = numbers.word[j] >= drop_below ? scale : 0.0f;
      }
    }
  }

  // The same of four neighbours, the first of them any element.
  KITTENS_DEVICE void factors_anywhere(float (&factor)[4], int64_t first) const {
    const int skipped = int(first & 3);
    if (skipped == 0) return factors(factor, first);
    const four_words low = philox(seed, uint64_t(first) / 4);
    const four_words high = philox(seed, uint64_t(first) / 4 + 1);
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
