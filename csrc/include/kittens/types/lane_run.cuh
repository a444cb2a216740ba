// lane_run: N neighbouring elements in the registers of one lane. 16-bit elements lie two to a
// register and convert in pairs; kept as separate elements, each of them would cost a register, and
// each copy a byte permutation (measured in the SASS of layer_norm: 92 PRMT of 1208 instructions).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/dtype.cuh"

namespace kittens {

template <element T, int N>
struct lane_run {
  static constexpr bool kPairs = sizeof(T) == 2 && N % 2 == 0;
  using word = std::conditional_t<kPairs, uint32_t, T>;
  static constexpr int kWords = kPairs ? N / 2 : N;

  word words[kWords];

  KITTENS_DEVICE void get(float (&dst)[N]) const {
    if constexpr (kPairs) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) unpack<T>(dst[2 * i], dst[2 * i + 1], words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) dst[i] = convert<float>(words[i]);
    }
  }

  KITTENS_DEVICE void set(const float (&src)[N]) {
    if constexpr (kPairs) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = pack<T>(src[2 * i], src[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) words[i] = convert<T>(src[i]);
    }
  }
};

template <element To, element From, int N>
KITTENS_DEVICE void convert_run(lane_run<To, N>& dst, const lane_run<From, N>& src) {
  if constexpr (std::same_as<To, From>) {
    dst = src;
  } else {
    float values[N];
    src.get(values);
    dst.set(values);
  }
}

}  // namespace kittens
