// linear: weights, as 16 bytes of a row become factors.
//
//   linear_plain<T>   T itself
//   linear_e4m3<T>    e4m3 (OCP FP8: no infinities), a scale a row, which the sums are multiplied
//   by linear_int4<T>    n − zero, 0 ≤ n < 16, times a scale: one of each for some neighbours of a
//   row
//
// A type of these has
//
//   lane_cols         elements of 16 bytes
//   kRowsEndAnywhere  whether rows may end within them
//   kGrouped          whether there are scales in a row, `scale`
//   kFactor           what factors have to be multiplied by yet; beside it, where kRowScaled, a
//   scale
//                     a row
//   convert(pairs, bytes, scale)   neighbours, the first one low
//
// Instructions for two factors: e4m3 6, of which 1 looks for NaN; int4 3.75. A product of 16 × 8 ×
// 16 takes one half for two factors, and a Hopper multiprocessor reads 15 bytes a cycle, in which
// it has 17 and 8.5 for two.
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear.h"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

using namespace kittens;

// Of the scales, and zeros, of a row.
struct linear_groups {
  int64_t count;  // of a row
  int size;       // elements
};

struct linear_no_scale {};

template <class T>
struct linear_plain {
  using scale = linear_no_scale;
  static constexpr int lane_cols = int(sizeof(uint4) / sizeof(T));
  static constexpr bool kRowsEndAnywhere = true, kQuantized = false;
  static constexpr bool kGrouped = false, kRowScaled = false;
  static constexpr float kFactor = 1.0f;

  KITTENS_DEVICE static void convert(uint32_t (&pairs)[4], const uint4& bytes, const scale&) {
    pairs[0] = bytes.x;
    pairs[1] = bytes.y;
    pairs[2] = bytes.z;
    pairs[3] = bytes.w;
  }
};

// Exponent and mantissa go to T's, whose exponent has another bias: 2⁻¹²⁰ of the value in bf16, 2⁻⁸
// in fp16, also where it is subnormal.
template <class T>
struct linear_e4m3 {
  using scale = linear_no_scale;
  static constexpr int lane_cols = 16;
  static constexpr bool kRowsEndAnywhere = false, kQuantized = true;
  static constexpr bool kGrouped = false, kRowScaled = true;
  static constexpr bool is_bf16 = std::same_as<T, bf16>;
  static constexpr float kFactor = is_bf16 ? 1.0f : 256.0f;

  // One NaN is as good as all: of any x, it makes the same sum NaN.
  KITTENS_DEVICE static void convert(uint32_t (&pairs)[8], const uint4& bytes, const scale&) {
    constexpr uint32_t kNan = 0x7fff;
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    uint32_t carries = 0;  // 127 beside a sign, and 1, change the sign
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      carries |= (words[i] + 0x01010101) ^ words[i];
      pairs[2 * i] = of_high_bytes(arch::byte_permute(words[i], words[i], 0x1100));
      pairs[2 * i + 1] = of_high_bytes(arch::byte_permute(words[i], words[i], 0x3322));
    }
    if ((carries & 0x80808080) != 0) pairs[0] = kNan;
  }

 private:
  // Of bytes 1 and 3; the others may be anything.
  KITTENS_DEVICE static uint32_t of_high_bytes(uint32_t word) {
    if constexpr (is_bf16) {
      constexpr uint32_t kTwoTo120 = 0x7b807b80;
      return multiply_pairs<T>((word & 0x80008000) | (word >> 4 & 0x07f007f0), kTwoTo120);
    } else {
      return (word & 0x80008000) | (word >> 1 & 0x3f803f80);
    }
  }
};

// Eight neighbours are four bytes: numbers 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on. So two
// neighbours are 16 bits apart, where they become the mantissa's lowest bits of 2^k + n.
template <class T>
struct linear_int4 {
  static constexpr int lane_cols = 32;
  static constexpr bool kRowsEndAnywhere = false, kQuantized = true;
  static constexpr bool kGrouped = true, kRowScaled = false;
  static constexpr float kFactor = 1.0f;
  static constexpr bool is_bf16 = std::same_as<T, bf16>;
  static constexpr uint32_t kPowers = is_bf16 ? 0x43004300 : 0x64006400;  // 128, 1024; ulp 1

  // Of 32 neighbours.
  struct scale {
    uint32_t bits;  // of the factor; above them zero

    // Zeros where not `there`.
    KITTENS_DEVICE void load(const linear_tensors& t, const linear_groups& groups, int64_t row,
                             int col, bool there) {
      const int64_t at = row * groups.count + col / groups.size;
      uint32_t factor = 0, n = 8;
      if (there) {
        factor = arch::load_global(static_cast<const unsigned short*>(t.weight_scale) + at);
        if (t.weight_zero != nullptr) {
          n = arch::load_global(static_cast<const unsigned char*>(t.weight_zero) + at);
        }
      }
      bits = factor | n << 16;
    }
    KITTENS_DEVICE uint32_t factors() const { return bits << 16 | (bits & 0x0000ffff); }
    KITTENS_DEVICE uint32_t zeros() const { return bits >> 16 | (bits & 0xffff0000) | kPowers; }
  };

  KITTENS_DEVICE static uint32_t without(uint32_t a, uint32_t b) {
    using pair = std::conditional_t<is_bf16, __nv_bfloat162, __half2>;
    pair x, y;
    std::memcpy(static_cast<void*>(&x), &a, sizeof(x));
    std::memcpy(static_cast<void*>(&y), &b, sizeof(y));
    const pair difference = __hsub2(x, y);
    uint32_t words;
    std::memcpy(&words, &difference, sizeof(words));
    return words;
  }
  // n − zero is exact, and its product with the scale is rounded.
  KITTENS_DEVICE static void convert(uint32_t (&pairs)[16], const uint4& bytes, const scale& by) {
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    const uint32_t factors = by.factors(), zeros = by.zeros();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t powers = (words[i / 4] >> i % 4 * 4 & 0x000f000f) | kPowers;
      pairs[i] = multiply_pairs<T>(without(powers, zeros), factors);
    }
  }
};

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
