// arch/pair_math.cuh in the simulator.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

namespace detail {

// A sum that was rounded to nearest and is `error` less than the true one, rounded to odd instead:
// rounding that once more, to two bits fewer at least, is as rounding once.
template <class Float, class Bits>
Float round_to_odd(Float sum, double error) {
  if (error == 0 || !std::isfinite(sum)) return sum;
  if ((error < 0) == (sum > 0)) sum = std::nextafter(sum, Float{0});
  return std::bit_cast<Float>(std::bit_cast<Bits>(sum) | 1);
}

inline uint32_t fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
  const auto wide = [](uint32_t half) { return double{std::bit_cast<float>(half << 16)}; };
  const double product = wide(a) * wide(b), addend = wide(c), sum = product + addend;
  if (std::isnan(sum)) return 0x7fff;
  const double of_product = sum - addend;  // Knuth's sum and its error
  const double error = (product - of_product) + (addend - (sum - of_product));
  const double odd = round_to_odd<double, uint64_t>(sum, error);
  const float nearest = static_cast<float>(odd);
  const float narrow = round_to_odd<float, uint32_t>(nearest, odd - double{nearest});
  const uint32_t bits = std::bit_cast<uint32_t>(narrow);
  return (bits + (std::isfinite(narrow) ? 0x7fff + (bits >> 16 & 1) : 0)) >> 16;
}

}  // namespace detail

KITTENS_DEVICE uint32_t fma_bf16_pairs(uint32_t a, uint32_t b, uint32_t c) {
  return detail::fma_bf16(a & 0xffff, b & 0xffff, c & 0xffff) |
         detail::fma_bf16(a >> 16, b >> 16, c >> 16) << 16;
}

}  // namespace kittens::arch
