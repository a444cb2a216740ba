// arch/math.cuh in the simulator: the host's functions, with the device's treatment of subnormals.
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {
namespace detail {

// Subnormal numbers become zero, with their sign.
KITTENS_DEVICE float flush(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

}  // namespace detail

KITTENS_DEVICE float exp2_approx(float x) { return detail::flush(std::exp2(detail::flush(x))); }
KITTENS_DEVICE float log2_approx(float x) { return std::log2(detail::flush(x)); }
KITTENS_DEVICE float rsqrt_approx(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(detail::flush(x))));
}
KITTENS_DEVICE float reciprocal_approx(float x) { return detail::flush(1.0f / detail::flush(x)); }
KITTENS_DEVICE float tanh_approx(float x) { return std::tanh(x); }
KITTENS_DEVICE float fma(float a, float b, float c) { return std::fma(a, b, c); }
// Compiled with -ffp-contract=off.
KITTENS_DEVICE float mul_rounded(float a, float b) { return a * b; }
KITTENS_DEVICE int round_to_int(float x) {
  if (x >= 0x1p31f) return INT32_MAX;
  if (x <= -0x1p31f) return INT32_MIN;
  return std::isnan(x) ? 0 : static_cast<int>(std::lrintf(x));
}
KITTENS_DEVICE int popc(unsigned x) { return std::popcount(x); }
KITTENS_DEVICE unsigned select_bits(unsigned a, unsigned b, unsigned mask) {
  return (a & mask) | (b & ~mask);
}
KITTENS_DEVICE unsigned byte_permute(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned from = selector >> 4 * i & 7;
    result |= static_cast<unsigned>(bytes >> 8 * from & 0xff) << 8 * i;
  }
  return result;
}

}  // namespace kittens::arch
