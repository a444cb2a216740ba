// Element types and their conversions. Every conversion rounds to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>
#include <cstdint>
#include <cstring>

#include "kittens/arch/keywords.cuh"

namespace kittens {

using bf16 = __nv_bfloat16;
using half = __half;

template <class T>
concept element = std::same_as<T, float> || std::same_as<T, bf16> || std::same_as<T, half>;

// On the host as well, where tests make and check values with it.
template <element To, element From>
KITTENS_INLINE To convert(From value) {
  if constexpr (std::same_as<To, From>) {
    return value;
  } else if constexpr (std::same_as<From, bf16>) {
    return convert<To>(__bfloat162float(value));
  } else if constexpr (std::same_as<From, half>) {
    return convert<To>(__half2float(value));
  } else if constexpr (std::same_as<To, bf16>) {
    return __float2bfloat16_rn(value);
  } else {
    return __float2half_rn(value);
  }
}

// Two neighbouring 16-bit elements share a register, the first in its low half, and convert
// together.
template <class T>
concept half_width = std::same_as<T, bf16> || std::same_as<T, half>;

template <half_width T>
KITTENS_INLINE uint32_t pack(float low, float high) {
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

template <half_width T>
KITTENS_INLINE void unpack(float& low, float& high, uint32_t both) {
  if constexpr (std::same_as<T, bf16>) {  // two bf16 are the upper halves of two floats
    const uint32_t bits[2] = {both << 16, both & 0xffff0000u};
    std::memcpy(&low, &bits[0], sizeof(low));
    std::memcpy(&high, &bits[1], sizeof(high));
  } else {
    __half2 pair;
    std::memcpy(static_cast<void*>(&pair), &both, sizeof(both));
    const float2 floats = __half22float2(pair);
    low = floats.x;
    high = floats.y;
  }
}

}  // namespace kittens
