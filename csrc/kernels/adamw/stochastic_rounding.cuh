// Stochastic rounding to bfloat16: a float goes to the neighbour above or below with the chance
// that makes the mean exact. What an element gets follows from the seed, the step, the number of
// its parameter and its own number alone.
//
// Philox 4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). The counter is i / 4 (two words), the step, and twice the parameter's number; one more for
// a second set. Word i % 4 is element i's: its lower half for the parameter, its upper one for the
// first moment; the second moment has the lower half of the second set.
#pragma once

#include <kittens.cuh>

#include <bit>
#include <cstdint>

#include "kernels/adamw/adamw.h"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kPhiloxRounds = 7;

struct four_words {
  uint32_t word[4];
};

KITTENS_DEVICE four_words philox(uint64_t seed, four_words counter) {
  uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  four_words c = counter;
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

// The numbers of one parameter in one step.
struct rounding_numbers {
  uint64_t seed;
  uint32_t step, parameter;

  // Of a run of neighbours, the first of them element `first`, a multiple of N; set: 0 or 1.
  template <int N>
  KITTENS_DEVICE void get(uint32_t (&words)[N], int64_t first, uint32_t set) const {
    constexpr int kWords = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += kWords) {
      const auto quad = uint64_t(first + i) / 4;
      const four_words four =
          philox(seed, {{uint32_t(quad), uint32_t(quad >> 32), step, 2 * parameter + set}});
      if constexpr (N == 1) {
        const int which = static_cast<int>(first & 3);
        const uint32_t low = which & 1 ? four.word[1] : four.word[0];
        const uint32_t high = which & 1 ? four.word[3] : four.word[2];
        words[0] = which & 2 ? high : low;
      } else {
        static_assert(N % 4 == 0);
#pragma unroll
        for (int j = 0; j < 4; ++j) words[i + j] = four.word[j];
      }
    }
  }
};

// x as a number of bfloat16, by the lower half of `bits`. What is not finite stays what it is.
KITTENS_DEVICE float round_stochastically(float x, uint32_t bits) {
  constexpr uint32_t kInfinity = 0x7f800000u, kLow = 0xffffu;
  const auto given = std::bit_cast<uint32_t>(x);
  if ((given & kInfinity) == kInfinity) return x;
  return std::bit_cast<float>((given + (bits & kLow)) & ~kLow);
}

}  // namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET
