// Philox 4x32-7 by ATen: the numbers that kernels draw from a seed, on any device.
#pragma once

#include <ATen/ATen.h>

#include "binding/tensors.h"

namespace thunderkittens {

// Words for elements 0 … count − 1, each in an int64: of block i / 4 word i % 4. Its counter is the
// number of the block, in two words, and `third` and `fourth`, of one element. The key's words are
// numbers or tensors.
template <class Word>
Tensor philox_words(int64_t count, const Tensor& third, const Tensor& fourth,
                    std::array<Word, 2> key) {
  constexpr int64_t kWord = 0xffffffff;
  constexpr int kRounds = 7;
  // The upper and the lower word. (Of 64 bits that wrap, so no product is too large.)
  const auto product = [](const Tensor& a, int64_t b) {
    const Tensor both = a * b;
    return std::pair(both.bitwise_right_shift(32).bitwise_and_(kWord), both.bitwise_and(kWord));
  };
  const Tensor block = at::arange((count + 3) / 4, third.options());
  std::array<Tensor, 4> c = {block.bitwise_and(kWord), block.bitwise_right_shift(32), third,
                             fourth};
  for (int round = 0; round < kRounds; ++round) {
    const auto [a_high, a_low] = product(c[0], 0xD2511F53);
    const auto [b_high, b_low] = product(c[2], 0xCD9E8D57);
    c = {b_high.bitwise_xor(c[1]).bitwise_xor(key[0]), b_low,
         a_high.bitwise_xor(c[3]).bitwise_xor(key[1]), a_low};
    key = {(key[0] + 0x9E3779B9) & kWord, (key[1] + 0xBB67AE85) & kWord};
  }
  return at::stack({c[0], c[1], c[2], c[3]}, 1).flatten().narrow(0, 0, count);
}

}  // namespace thunderkittens
