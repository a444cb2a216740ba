// linear: weights, as 16 bytes of a row become factors.
//
//   linear_plain<T>        T itself
//   linear_e4m3<T>         e4m3 (OCP FP8: no infinities), a scale a row, which sums are multiplied
//   by linear_int4<T, Steps>  n − zero, 0 ≤ n < 16, times a scale: one of each for a group of
//                          neighbours of a row. Steps: whether groups are whole steps, whose sums
//                          are then scaled
//
// A type of these has
//
//   lane_cols     elements of 16 bytes, within which rows of a quantized weight do not end
//   kGrouped      whether there are scales in a row, `scale`
//   kScalesSums   … by which sums are multiplied
//   kRowScaled    whether there is a scale a row
//   kFactor       what factors have to be multiplied by yet beside it
//   convert(pairs, bytes, i, scale)   neighbours of word i, the first one low; in e4m3's `order`
//
// Instructions for two factors: e4m3 5, of which 1 looks for NaN; int4 3.75, where sums are scaled
// 1.75. A product of 16 × 8 × 16 takes a quarter for two factors, and an H200's multiprocessor
// reads 18 bytes a cycle, in which it has 14 and 7 for two.
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear.h"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

using namespace kittens;

// Of the scales, and zeros, of a row.
struct linear_groups {
  int64_t count;     // of a row
  uint32_t size;     // elements
  uint32_t inverse;  // 2³² / size, rounded up

  static linear_groups of(int64_t columns, int64_t size) {
    return {columns / size, static_cast<uint32_t>(size),
            static_cast<uint32_t>(((int64_t{1} << 32) + size - 1) / size)};
  }
  // The group of a column: by the inverse, one more at most.
  KITTENS_DEVICE int at(int col) const {
    const auto column = static_cast<uint32_t>(col);
    const auto group = static_cast<uint32_t>(uint64_t{column} * inverse >> 32);
    return static_cast<int>(group * size > column ? group - 1 : group);
  }
};

struct linear_no_scale {};

template <class T>
struct linear_plain {
  static constexpr int lane_cols = int(sizeof(uint4) / sizeof(T));
  static constexpr bool kQuantized = false, kGrouped = false, kRowScaled = false;
};

// Exponent and mantissa go to T's, whose exponent has another bias: 2⁻¹²⁰ of the value in bf16, 2⁻⁸
// in fp16, also where it is subnormal.
template <class T>
struct linear_e4m3 {
  using scale = linear_no_scale;
  static constexpr int lane_cols = 16;
  static constexpr bool kQuantized = true;
  static constexpr bool kGrouped = false, kScalesSums = false, kRowScaled = true;
  static constexpr bool is_bf16 = std::same_as<T, bf16>;
  static constexpr float kFactor = is_bf16 ? 1.0f : 256.0f;

  // Four neighbours, word `i`; the pairs are 0 and 2, 1 and 3. One NaN is as good as all: of any x,
  // it makes the same sum NaN.
  KITTENS_DEVICE static void convert(uint32_t (&pairs)[2], const uint4& bytes, int i,
                                     const scale&) {
    constexpr uint32_t kNan = 0x7fff;
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    const uint32_t word = words[i], signs = word & 0x80808080;
    pairs[0] = with_sign(is_bf16 ? word << 4 : word << 7, signs << 8);
    pairs[1] = with_sign(is_bf16 ? word >> 4 : word >> 1, signs);
    if (i > 0) return;
    uint32_t carries = 0;  // 127 beside a sign, and 1, change the sign
#pragma unroll
    for (const uint32_t each : words) carries |= (each + 0x01010101) ^ each;
    if ((carries & 0x80808080) != 0) pairs[0] = kNan;
  }
  // Brings four neighbours of x into the same order.
  KITTENS_DEVICE static void order(uint32_t& first, uint32_t& second) {
    const uint32_t a = first, b = second;
    first = arch::byte_permute(a, b, 0x5410);
    second = arch::byte_permute(a, b, 0x7632);
  }

 private:
  // Exponent and mantissa stand where T has them, signs above.
  KITTENS_DEVICE static uint32_t with_sign(uint32_t moved, uint32_t signs) {
    if constexpr (is_bf16) {
      constexpr uint32_t kTwoTo120 = 0x7b807b80;
      return multiply_pairs<T>(arch::select_bits(moved, signs, 0x07f007f0), kTwoTo120);
    } else {
      return arch::select_bits(moved, signs, 0x3f803f80);
    }
  }
};

// Eight neighbours are four bytes: numbers 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on. So two
// neighbours are 16 bits apart, where they become bits of the mantissa of 2^k + n.
template <class T, bool Steps>
struct linear_int4 {
  static constexpr int lane_cols = 32;
  static constexpr bool kQuantized = true;
  static constexpr bool kGrouped = true, kScalesSums = Steps, kRowScaled = false;
  static constexpr float kFactor = 1.0f;
  static constexpr bool is_bf16 = std::same_as<T, bf16>;
  // Its lowest bits in bf16, of 128 + n. In fp16 the fifth and above, of 64 + n: the less is added
  // to n, the fewer digits of sums it takes.
  static constexpr uint32_t kPowers = is_bf16 ? 0x43004300 : 0x54005400;
  static constexpr uint32_t kBits = is_bf16 ? 0x000f000f : 0x00f000f0;

  // Of 32 neighbours.
  struct scale {
    uint32_t bits;  // of the factor; above them zero

    // Number `at` of all groups. Zeros where it is not `there`.
    KITTENS_DEVICE void load(const linear_tensors& t, int64_t at, bool there) {
      const auto* factors = static_cast<const unsigned short*>(t.weight_scale);
      const auto* zeros = static_cast<const unsigned char*>(t.weight_zero);
      const uint32_t factor = there ? arch::load_global(factors + at) : 0;
      const uint32_t n = zeros == nullptr ? 8 : there ? arch::load_global(zeros + at) : 0;
      bits = factor | n << 16;
    }
    // Number `at` of all groups, of the words that have it: two scales, four zeros.
    KITTENS_DEVICE void set(uint32_t scales, const uint32_t* zeros, uint32_t at) {
      const uint32_t factor = scales >> at % 2 * 16 & 0xffff;
      const uint32_t n = zeros == nullptr ? 8 : arch::load_shared(zeros) >> at % 4 * 8 & 0xff;
      bits = factor | n << 16;
    }
    // Twice, as a pair; of sums as a float, the zero with the power of two that is in their
    // factors.
    KITTENS_DEVICE uint32_t factors() const { return bits << 16 | (bits & 0x0000ffff); }
    KITTENS_DEVICE uint32_t zeros() const {
      const uint32_t zero = bits >> 16 | (bits & 0xffff0000);
      return (is_bf16 ? zero : zero << 4) | kPowers;
    }
    KITTENS_DEVICE float factor() const {
      float value, above;
      unpack<T>(value, above, bits);
      return value;
    }
    KITTENS_DEVICE float zero() const {
      return of_bits(is_bf16 ? arch::select_bits(bits, 0x43000000, 0x000f0000)
                             : arch::select_bits(bits << 1, 0x42800000, 0x001e0000));
    }

   private:
    KITTENS_DEVICE static float of_bits(uint32_t bits) {
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
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
  // Eight neighbours, word `i`. Where numbers are scaled, n − zero is exact, and its product with
  // the scale is rounded.
  KITTENS_DEVICE static void convert(uint32_t (&pairs)[4], const uint4& bytes, int i,
                                     const scale& by) {
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t word = words[i], shift = 4 * n;
      const uint32_t moved = is_bf16 ? word >> shift : n == 0 ? word << 4 : word >> (shift - 4);
      pairs[n] = arch::select_bits(moved, kPowers, kBits);
      if constexpr (!kScalesSums) {
        pairs[n] = multiply_pairs<T>(without(pairs[n], by.zeros()), by.factors());
      }
    }
  }
};

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
