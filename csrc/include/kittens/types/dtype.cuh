// Element types and their conversions. Every conversion rounds to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>

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

}  // namespace kittens
