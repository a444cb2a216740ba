// Moves the elements of a register tile to the lanes where another layout, or the transposed tile,
// wants them.
//
//   swap_layout(dst, src)           the same tile in the other layout
//   swap_layout_inplace(tile)       the same, in the tile's own registers: returns a reference to
//                                   the other-layout tile; `tile` itself is dead from then on
//   transpose(dst, src)             dst[c][r] = src[r][c]. To the other layout this moves nothing:
//   a
//                                   row of a row-layout tile is a column of a column-layout one.
#pragma once

#include <cstdint>
#include <new>
#include <type_traits>

#include "kittens/arch/matrix.cuh"
#include "kittens/arch/shuffle.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/types/register_tile.cuh"

namespace kittens {

namespace detail {

template <class Layout>
using other_layout = std::conditional_t<std::same_as<Layout, ducks::rt_layout::row>,
                                        ducks::rt_layout::col, ducks::rt_layout::row>;
template <register_tile R>
using other_layout_tile = rt<typename R::dtype, R::rows, R::cols, other_layout<typename R::layout>>;

// Transposes an 8 × 8 matrix of which lane l holds elements (l / 4, l % 4 · 2) and the next of that
// row: afterwards it holds (l % 4 · 2, l / 4) and the next of that column. Those come from the
// lanes 8 · (l % 4) + l / 8 and 4 further on, from their first or second element as l / 4 is even
// or odd.
//
// Two exchanges, the fewest for two elements: in each of them, every lane sends one element to one
// lane. In the first, the even rows send their first element and the odd rows their second one.
KITTENS_DEVICE void transpose_8x8(float& x, float& y) {
  const int lane = arch::lane_id();
  const int even_row = lane % 4 * 8 + lane / 8, odd_row = even_row + 4;
  const bool odd = lane / 4 % 2 != 0;  // both: my row before, my column afterwards
  const float first = arch::shuffle(odd ? y : x, odd ? odd_row : even_row);
  const float second = arch::shuffle(odd ? x : y, odd ? even_row : odd_row);
  x = odd ? second : first;
  y = odd ? first : second;
}

// The same for two 16-bit elements in one register: an instruction of its own.
KITTENS_DEVICE void transpose_8x8(uint32_t& both) { both = arch::transpose_matrix(both); }

// The same for a pair of tile R.
template <register_tile R>
KITTENS_DEVICE void transpose_pair(typename R::word (&words)[R::kPairWords]) {
  if constexpr (R::kPacked) {
    transpose_8x8(words[0]);
  } else {
    transpose_8x8(words[0], words[1]);
  }
}

}  // namespace detail

template <register_tile D, register_tile S>
KITTENS_DEVICE void swap_layout(D& dst, const S& src) {
  static_assert(std::same_as<typename D::dtype, typename S::dtype>,
                "swap_layout: the tiles must have the same element type (copy converts)");
  static_assert(D::rows == S::rows && D::cols == S::cols,
                "swap_layout: the tiles must have the same rows and columns");
  static_assert(!std::same_as<typename D::layout, typename S::layout>,
                "swap_layout: the tiles must have different layouts");
#pragma unroll
  for (int line = 0; line < S::lines; ++line) {
#pragma unroll
    for (int i = 0; i < S::line_tiles * S::kPairs; ++i) {
      // Base tile t of `line` is base tile `line` of line t; the quarters 1 and 2 change places.
      const int t = i / S::kPairs, p = i % S::kPairs, q = p % 2 * 2 + p / 2;
      typename S::word words[S::kPairWords];
#pragma unroll
      for (int w = 0; w < S::kPairWords; ++w) words[w] = src.data[line][i * S::kPairWords + w];
      detail::transpose_pair<S>(words);
#pragma unroll
      for (int w = 0; w < S::kPairWords; ++w) {
        dst.data[t][(line * S::kPairs + q) * S::kPairWords + w] = words[w];
      }
    }
  }
}

template <register_tile R>
KITTENS_DEVICE auto& swap_layout_inplace(R& tile) {
  using other = detail::other_layout_tile<R>;
  static_assert(sizeof(other) == sizeof(R) && alignof(other) == alignof(R));
  other swapped;
  swap_layout(swapped, tile);
  return *new (static_cast<void*>(&tile)) other(swapped);
}

template <register_tile D, register_tile S>
KITTENS_DEVICE void transpose(D& dst, const S& src) {
  static_assert(std::same_as<typename D::dtype, typename S::dtype>,
                "transpose: the tiles must have the same element type (copy converts)");
  static_assert(D::rows == S::cols && D::cols == S::rows,
                "transpose: the destination must have the source's columns as its rows");
  // The transposed tile in the other layout: the same registers.
  rt<typename S::dtype, S::cols, S::rows, detail::other_layout<typename S::layout>> turned;
#pragma unroll
  for (int line = 0; line < S::lines; ++line) {
#pragma unroll
    for (int i = 0; i < S::line_tiles * S::kPairs * S::kPairWords; ++i) {
      turned.data[line][i] = src.data[line][i];
    }
  }
  if constexpr (std::same_as<D, decltype(turned)>) {
    dst = turned;
  } else {
    swap_layout(dst, turned);
  }
}

}  // namespace kittens
