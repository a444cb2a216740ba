// Random numbers that follow from a seed and a counter alone: whoever needs them again makes them
// again, in any order and launch shape.
//
// Philox 4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). A kernel that needs them includes this file beside kittens.cuh.
#pragma once

#include <cstdint>

#include "kittens/arch/arch.cuh"

namespace kittens {

struct four_words {
  uint32_t word[4];

  // Word i % 4, by selections: an index that is not a constant would move the words to memory.
  KITTENS_DEVICE uint32_t at(int64_t i) const {
    const uint32_t low = i & 1 ? word[1] : word[0], high = i & 1 ? word[3] : word[2];
    return i & 2 ? high : low;
  }
};

KITTENS_DEVICE four_words philox4x32(uint64_t seed, four_words counter) {
  constexpr int kRounds = 7;  // the fewest that pass the paper's tests
  uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  four_words c = counter;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c.word[0], b = uint64_t(0xCD9E8D57u) * c.word[2];
    c = {{uint32_t(b >> 32) ^ c.word[1] ^ key[0], uint32_t(b),
          uint32_t(a >> 32) ^ c.word[3] ^ key[1], uint32_t(a)}};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

}  // namespace kittens
