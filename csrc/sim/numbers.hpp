// 16-bit floating point, by its bits. (CUDA's own headers are not there for the simulator's
// library.)
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kittens::sim {

inline float float_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest even.
inline uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  float magnitude;
  if (exponent == 31) {
    magnitude = mantissa != 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
  }
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

// Rounds to nearest even.
inline uint16_t half_from_float(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  if (magnitude == 0) return sign;
  if (magnitude >= 65520) return sign | 0x7c00;  // half way from the largest to 2^16
  // As a multiple of the spacing of halves there. Rounding up to the next power of two carries into
  // the exponent, as it should.
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = exponent < -13 ? -13 : exponent;
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 13) << 10) + steps));
}

}  // namespace kittens::sim
