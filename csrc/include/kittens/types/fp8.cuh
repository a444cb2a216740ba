// Floats of 8 bits, e4m3: a sign, 4 bits of exponent and 3 of mantissa; up to ±448, and NaN, but no
// infinity. For what is stored: products and tiles are of wider elements.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "kittens/arch/keywords.cuh"

namespace kittens {

using fp8e4m3 = __nv_fp8_e4m3;

// Two neighbours as two halves, the first in the low half of both. Exact.
KITTENS_INLINE uint32_t halves_of(uint16_t pair) {
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
  uint32_t both;
  std::memcpy(&both, &halves, sizeof(both));
  return both;
}

// The nearest, ties to even; ±448 of what is beyond.
KITTENS_INLINE uint16_t pack_e4m3(float low, float high) {
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
}

}  // namespace kittens
