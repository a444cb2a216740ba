// Floats of 8 bits, e4m3: a sign, 4 bits of exponent and 3 of mantissa; up to ±448, and NaN, but no
// infinity. For what is stored: products and tiles are of wider elements.
//
// Where there are instructions for it (arch/fp8.cuh) they are what converts; elsewhere integers.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kittens/arch/fp8.cuh"
#include "kittens/arch/keywords.cuh"

namespace kittens {

using fp8e4m3 = __nv_fp8_e4m3;

namespace detail {

// Bits of a half, of its 5 of exponent the 4 lower ones, are those of e4m3: the same number times
// 2⁸, also where it is below the least normal one.
KITTENS_INLINE uint32_t halves_by_integers(uint16_t pair) {
  const uint32_t bytes = (pair & 0xffu) << 8 | (pair & 0xff00u) << 16;  // each on top of a half
  const uint32_t sizes = bytes >> 1 & 0x3f803f80;
  const uint32_t nan = (sizes + 0x00800080) & 0x40004000;  // then of the largest exponent
  const uint32_t scaled = (bytes & 0x80008000) | sizes | nan;
  const __half2_raw halves = {static_cast<uint16_t>(scaled), static_cast<uint16_t>(scaled >> 16)};
  constexpr __half_raw kUp = {0x5c00};  // 2⁸
  const __half2_raw product = __hmul2(halves, __half2{kUp, kUp});
  return product.x | uint32_t{product.y} << 16;
}

KITTENS_INLINE uint32_t e4m3_by_integers(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 24 & 0x80;
  if (x != x) return sign | 0x7f;
  const float size = fminf(fabsf(x), 448.0f);
  if (size < 0x1p-6f) {  // a multiple of 2⁻⁹, as floats from 2¹⁴ on are
    constexpr float kOnes = 0x1p14f;
    return sign | (std::bit_cast<uint32_t>(size + kOnes) - std::bit_cast<uint32_t>(kOnes));
  }
  const uint32_t of_size = std::bit_cast<uint32_t>(size);
  const uint32_t rounded = of_size + 0x7ffff + (of_size >> 20 & 1);
  return sign | ((rounded >> 20) - ((127 - 7) << 3));
}

}  // namespace detail

// Two neighbours as two halves, the first in the low half of both. Exact.
KITTENS_INLINE uint32_t halves_of(uint16_t pair) {
  if constexpr (arch::kConvertsFp8) {
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
    uint32_t both;
    std::memcpy(&both, &halves, sizeof(both));
    return both;
  }
  return detail::halves_by_integers(pair);
}

// The nearest, ties to even; ±448 of what is beyond.
KITTENS_INLINE uint16_t pack_e4m3(float low, float high) {
  if constexpr (arch::kConvertsFp8) {
    return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
  }
  return static_cast<uint16_t>(detail::e4m3_by_integers(low) | detail::e4m3_by_integers(high) << 8);
}

}  // namespace kittens
