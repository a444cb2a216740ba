// lane_run: N neighbouring elements in the registers of one lane. 16-bit elements lie two to a
// register and convert in pairs; kept as separate elements, each of them would cost a register, and
// each copy a byte permutation (measured in the SASS of layer_norm: 92 PRMT of 1208 instructions).
#pragma once

#include <cstdint>
#include <cstring>
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
      for (int i = 0; i < kWords; ++i) widen(dst[2 * i], dst[2 * i + 1], words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) dst[i] = convert<float>(words[i]);
    }
  }

  KITTENS_DEVICE void set(const float (&src)[N]) {
    if constexpr (kPairs) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = narrow(src[2 * i], src[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) words[i] = convert<T>(src[i]);
    }
  }

 private:
  static KITTENS_DEVICE void widen(float& low, float& high, uint32_t both) {
    if constexpr (std::same_as<T, bf16>) {  // two bf16 are the upper halves of two floats
      const uint32_t bits[2] = {both << 16, both & 0xffff0000u};
      std::memcpy(&low, &bits[0], sizeof(low));
      std::memcpy(&high, &bits[1], sizeof(high));
    } else {
      __half2 pair;
      std::memcpy(static_cast<void*>(&pair), &both, sizeof(both));
      const float2 wide = __half22float2(pair);
      low = wide.x;
      high = wide.y;
    }
  }
  static KITTENS_DEVICE uint32_t narrow(float low, float high) {
    uint32_t both;
    if constexpr (std::same_as<T, bf16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      std::memcpy(&both, &pair, sizeof(both));
    } else {
      const __half2 pair = __floats2half2_rn(low, high);
      std::memcpy(&both, &pair, sizeof(both));
    }
    return both;
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
