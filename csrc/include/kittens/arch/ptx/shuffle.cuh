// arch/shuffle.cuh on the device. shfl.sync and vote.sync through CUDA's intrinsics, which move
// 4-byte words.
#pragma once

#include <cstdint>
#include <cstring>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/shuffle.cuh"

namespace kittens::arch {
namespace detail {

// Applies a shuffle of 4-byte words to each word of v.
template <shufflable T, class Shuffle>
KITTENS_DEVICE T shuffle_words(T v, Shuffle word_shuffle) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &v, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = word_shuffle(words[i]);
  memcpy(static_cast<void*>(&v), words, sizeof(T));
  return v;
}

}  // namespace detail

template <shufflable T>
KITTENS_DEVICE T shuffle(T v, int lane) {
  return detail::shuffle_words(v, [=](uint32_t w) { return __shfl_sync(kAllLanes, w, lane); });
}

template <shufflable T>
KITTENS_DEVICE T shuffle_xor(T v, int mask) {
  return detail::shuffle_words(v, [=](uint32_t w) { return __shfl_xor_sync(kAllLanes, w, mask); });
}

template <shufflable T>
KITTENS_DEVICE T shuffle_down(T v, int delta) {
  return detail::shuffle_words(v,
                               [=](uint32_t w) { return __shfl_down_sync(kAllLanes, w, delta); });
}

template <shufflable T>
KITTENS_DEVICE T shuffle_up(T v, int delta) {
  return detail::shuffle_words(v, [=](uint32_t w) { return __shfl_up_sync(kAllLanes, w, delta); });
}

KITTENS_DEVICE bool vote_any(bool p) { return __any_sync(kAllLanes, p) != 0; }
KITTENS_DEVICE bool vote_all(bool p) { return __all_sync(kAllLanes, p) != 0; }
KITTENS_DEVICE unsigned ballot(bool p) { return __ballot_sync(kAllLanes, p); }

}  // namespace kittens::arch
