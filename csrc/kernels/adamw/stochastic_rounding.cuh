// Stochastic rounding to bfloat16: a float goes to the neighbour above or below with the chance
// that makes the mean exact. What an element gets follows from the seed, the step, the number of
// its parameter and its own number alone.
//
// Philox's counter is i / 4 (two words), the step, and twice the parameter's number; one more for a
// second set. Word i % 4 is element i's: its lower half for the parameter, its upper one for the
// first moment; the second moment has the lower half of the second set.
#pragma once

#include <kittens.cuh>

#include <bit>
#include <cstdint>

#include "kernels/adamw/adamw.h"
#include "kittens/ops/random.cuh"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {

using namespace kittens;

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
          philox4x32(seed, {{uint32_t(quad), uint32_t(quad >> 32), step, 2 * parameter + set}});
      if constexpr (N == 1) {
        words[0] = four.at(first);
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
