// Replaces a part of a register tile by a value. The destination comes first and may be the source.
//
//   make_causal(dst, src, value)             element (r, c) with c > r of a square tile
//   tril(dst, src, diagonal, value)          c > r + diagonal: what lies above the diagonal
//   triu(dst, src, diagonal, value)          c < r + diagonal: what lies below the diagonal
//   right_fill(dst, src, first_col, value)   c ≥ first_col       left_fill    c < first_col
//   lower_fill(dst, src, first_row, value)   r ≥ first_row       upper_fill   r < first_row
//
// The numbers are the same in all lanes of the warp, and may lie outside of the tile. Where nothing
// is replaced, as in most tiles of most kernels, a call costs one comparison.
#pragma once

#include "kittens/arch/thread.cuh"
#include "kittens/ops/register/tile_map.cuh"
#include "kittens/types/register_tile.cuh"

namespace kittens {

namespace detail {

// An element's key is RowWeight · row + ColWeight · col, with ColWeight ≥ 0. It is the sum of a
// constant, which depends on the element's place in the lane's registers, and of a number that
// depends on the lane alone.
template <int RowWeight, int ColWeight>
struct tile_key {
  KITTENS_INLINE static constexpr int of(int row, int col) {
    return RowWeight * row + ColWeight * col;
  }
  // The extremes in a tile.
  template <int Rows>
  KITTENS_INLINE static constexpr int low() {
    return of(RowWeight < 0 ? Rows - 1 : 0, 0);
  }
  template <int Rows, int Cols>
  KITTENS_INLINE static constexpr int high() {
    return of(RowWeight < 0 ? 0 : Rows - 1, Cols - 1);
  }
  template <register_tile R>
  KITTENS_INLINE static constexpr int of_pair(int line, int t, int p, int lane) {
    const int across = R::across(line, p, lane), along = R::along(t, p, lane);
    return R::is_row ? of(across, along) : of(along, across);
  }
};

enum class filled { below, from };

// Replaces the elements whose key is below `bound`, or from it on: a comparison with a constant and
// a selection per element. With a bound known to the
// compiler, only the 8 × 8 quarters of base tiles that it cuts need that.
template <class Key, filled Side, bool Known = false, register_tile R>
KITTENS_DEVICE void fill_by_key(R& tile, int bound, float value) {
  constexpr int low = Key::template low<R::rows>();
  constexpr int high = Key::template high<R::rows, R::cols>();
  if (Side == filled::from ? bound > high : bound <= low) return;

  const int in_tile = bound < low ? low : bound > high ? high + 1 : bound;
  const int limit = in_tile - Key::template of_pair<R>(0, 0, 0, arch::lane_id());
  constexpr int step = R::is_row ? Key::of(0, 1) : Key::of(1, 0);
#pragma unroll
  for (int line = 0; line < R::lines; ++line) {
#pragma unroll
    for (int i = 0; i < R::line_tiles * R::kPairs; ++i) {
      const int t = i / R::kPairs, p = i % R::kPairs;
      const int key = Key::template of_pair<R>(line, t, p, 0);
      const bool all = Known && key + Key::template low<8>() >= bound;
      const bool none = Known && key + Key::template high<8, 8>() < bound;
      const bool first = all || (!none && key >= limit);
      const bool second = all || (!none && key + step >= limit);
      const float_pair in(tile, line, t, p);
      tile.set(line, t, p, first == (Side == filled::from) ? value : in.x,
               second == (Side == filled::from) ? value : in.y);
    }
  }
}

using key_of_row = tile_key<1, 0>;
using key_of_col = tile_key<0, 1>;
using key_of_diagonal = tile_key<-1, 1>;

}  // namespace detail

template <register_tile D, register_tile S>
KITTENS_DEVICE void tril(D& dst, const S& src, int diagonal, float value) {
  copy(dst, src);
  const int bound = diagonal < D::cols ? diagonal + 1 : D::cols;
  detail::fill_by_key<detail::key_of_diagonal, detail::filled::from>(dst, bound, value);
}
template <register_tile D, register_tile S>
KITTENS_DEVICE void triu(D& dst, const S& src, int diagonal, float value) {
  copy(dst, src);
  detail::fill_by_key<detail::key_of_diagonal, detail::filled::below>(dst, diagonal, value);
}
template <register_tile D, register_tile S>
KITTENS_DEVICE void make_causal(D& dst, const S& src, float value) {
  static_assert(D::rows == D::cols,
                "make_causal takes a square tile (tril takes any, and a diagonal)");
  copy(dst, src);
  detail::fill_by_key<detail::key_of_diagonal, detail::filled::from, true>(dst, 1, value);
}

template <register_tile D, register_tile S>
KITTENS_DEVICE void right_fill(D& dst, const S& src, int first_col, float value) {
  copy(dst, src);
  detail::fill_by_key<detail::key_of_col, detail::filled::from>(dst, first_col, value);
}
template <register_tile D, register_tile S>
KITTENS_DEVICE void left_fill(D& dst, const S& src, int first_col, float value) {
  copy(dst, src);
  detail::fill_by_key<detail::key_of_col, detail::filled::below>(dst, first_col, value);
}
template <register_tile D, register_tile S>
KITTENS_DEVICE void lower_fill(D& dst, const S& src, int first_row, float value) {
  copy(dst, src);
  detail::fill_by_key<detail::key_of_row, detail::filled::from>(dst, first_row, value);
}
template <register_tile D, register_tile S>
KITTENS_DEVICE void upper_fill(D& dst, const S& src, int first_row, float value) {
  copy(dst, src);
  detail::fill_by_key<detail::key_of_row, detail::filled::below>(dst, first_row, value);
}

}  // namespace kittens
