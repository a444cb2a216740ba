// Matrix products of register tiles by one warp, on the tensor cores (mma.sync). 16-bit operands,
// float accumulators; d may be c.
//
//   mma_AB(d, a, b, c)      d = a·b + c      a [M, K] row layout   b [K, N] column layout
//   mma_ABt(d, a, b, c)     d = a·bᵀ + c     a [M, K] row layout   b [N, K] row layout
//   mma_AtB(d, a, b, c)     d = aᵀ·b + c     a [K, M] col layout   b [K, N] column layout
//   mma_AtBt(d, a, b, c)    d = aᵀ·bᵀ + c    a [K, M] col layout   b [N, K] row layout
//   mm_AB(d, a, b) …        the same without c
//
// d and c are [M, N] in row layout. A tile and its transpose in the other layout are the same
// registers, so all four are one product of lines of base tiles; only what they accept differs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/mma.cuh"
#include "kittens/ops/register/tile_map.cuh"
#include "kittens/types/register_tile.cuh"

namespace kittens {

namespace detail {

// What the product accepts, if the operands are transposed so.
template <bool ATransposed, bool BTransposed, register_tile D, register_tile A, register_tile B>
KITTENS_INLINE constexpr void check_mma() {
  static_assert(std::same_as<typename D::dtype, float>,
                "mma: the accumulators must be float tiles (rt_fl)");
  static_assert(D::is_row, "mma: the accumulators must be in row layout");
  static_assert(half_width<typename A::dtype> && half_width<typename B::dtype>,
                "mma: a and b must be bf16 or half tiles (copy converts)");
  static_assert(std::same_as<typename A::dtype, typename B::dtype>,
                "mma: a and b must have the same element type");
  static_assert(ATransposed || A::is_row, "mma_AB, mma_ABt: a must be in row layout");
  static_assert(!ATransposed || !A::is_row, "mma_AtB, mma_AtBt: a must be in column layout");
  static_assert(BTransposed || !B::is_row, "mma_AB, mma_AtB: b must be in column layout");
  static_assert(!BTransposed || B::is_row, "mma_ABt, mma_AtBt: b must be in row layout");

  constexpr int m = ATransposed ? A::cols : A::rows, n = BTransposed ? B::rows : B::cols;
  constexpr int a_depth = ATransposed ? A::rows : A::cols;
  constexpr int b_depth = BTransposed ? B::cols : B::rows;
  static_assert(a_depth == b_depth, "mma: the inner extents of a and b must be equal");
  static_assert(
      D::rows == m && D::cols == n,
      "mma: d must have a row per row of the product's left side, and a column per column "
      "of its right side");
}

// d += a·b: line m of a and line n of b make base tile (m, n) of d.
template <register_tile D, register_tile A, register_tile B>
KITTENS_DEVICE void accumulate_mma(D& d, const A& a, const B& b) {
#pragma unroll
  for (int k = 0; k < A::line_tiles; ++k) {  // outermost: neighbouring products are independent
#pragma unroll
    for (int m = 0; m < A::lines; ++m) {
      uint32_t left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) left[i] = a.data[m][k * 4 + i];
#pragma unroll
      for (int n = 0; n < 2 * B::lines; ++n) {  // eight columns each: half of a base tile
        const uint32_t right[2] = {b.data[n / 2][k * 4 + n % 2], b.data[n / 2][k * 4 + n % 2 + 2]};
        float sums[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = d.data[m][n * 4 + i];
        arch::mma_m16n8k16<typename A::dtype>(sums, left, right, sums);
#pragma unroll
        for (int i = 0; i < 4; ++i) d.data[m][n * 4 + i] = sums[i];
      }
    }
  }
}

}  // namespace detail

#define KITTENS_MMA(name, a_transposed, b_transposed)                           \
  template <register_tile D, register_tile A, register_tile B, register_tile C> \
  KITTENS_DEVICE void mma_##name(D& d, const A& a, const B& b, const C& c) {    \
    detail::check_mma<a_transposed, b_transposed, D, A, B>();                   \
    static_assert(std::same_as<C, D>, "mma: c must be a tile like d");          \
    d = c;                                                                      \
    detail::accumulate_mma(d, a, b);                                            \
  }                                                                             \
  template <register_tile D, register_tile A, register_tile B>                  \
  KITTENS_DEVICE void mm_##name(D& d, const A& a, const B& b) {                 \
    detail::check_mma<a_transposed, b_transposed, D, A, B>();                   \
    zero(d);                                                                    \
    detail::accumulate_mma(d, a, b);                                            \
  }
KITTENS_MMA(AB, false, false)
KITTENS_MMA(ABt, false, true)
KITTENS_MMA(AtB, true, false)
KITTENS_MMA(AtBt, true, true)
#undef KITTENS_MMA

}  // namespace kittens
