// bfloat16 for the host: the upper half of a float.
#pragma once

#include <bit>
#include <cstdint>

namespace gpt2 {

struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float x) {  // to the nearest, ties to even; of finite numbers
    const uint32_t word = std::bit_cast<uint32_t>(x);
    bits = static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

}  // namespace gpt2
