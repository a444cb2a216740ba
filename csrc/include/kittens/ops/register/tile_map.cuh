// Element-wise maths on register tiles, and with one value per row or column. The destination comes
// first and may be a source. 16-bit elements are computed in float and rounded once.
//
// ops/register/vector_map.cuh names the operations on whole tiles: zero one fill pos_infty
// neg_infty exp exp2 log log2 abs relu add sub mul div max min fma. Here are add_row … min_row,
// which take one value per row of the tile (its col_vec), and add_col … min_col, which take one per
// column (its row_vec); broadcast_row and broadcast_col make a tile of them.
#pragma once

#include "kittens/ops/register/vector_map.cuh"
#include "kittens/types/register_tile.cuh"

namespace kittens {

namespace detail {

// Pair p of base tile t of a line, as floats.
struct float_pair {
  float x, y;
  template <register_tile R>
  KITTENS_DEVICE float_pair(const R& tile, int line, int t, int p) {
    tile.get(x, y, line, t, p);
  }
};

template <class F, register_tile D, class... Pairs>
KITTENS_DEVICE void map_pair(F f, D& dst, int line, int t, int p, const Pairs&... src) {
  dst.set(line, t, p, f(src.x...), f(src.y...));
}

// A vector whose lanes hold the values of the rows, or columns, that they have of tile R.
template <class V, class R>
KITTENS_INLINE constexpr void check_col_vec() {
  static_assert(V::length == R::rows, "the vector must have one value per row of the tile");
  static_assert(std::same_as<typename V::layout, typename R::col_vec::layout>,
                "the vector must have the layout of the tile's col_vec");
}
template <class V, class R>
KITTENS_INLINE constexpr void check_row_vec() {
  static_assert(V::length == R::cols, "the vector must have one value per column of the tile");
  static_assert(std::same_as<typename V::layout, typename R::row_vec::layout>,
                "the vector must have the layout of the tile's row_vec");
}

// Tiles whose elements lie in the same lanes.
template <class D, class... S>
KITTENS_INLINE constexpr void check_same_lanes() {
  static_assert(((D::rows == S::rows && D::cols == S::cols) && ...),
                "the tiles must have the same rows and columns");
  static_assert((std::same_as<typename D::layout, typename S::layout> && ...),
                "the tiles must have the same layout (swap_layout changes it)");
}

// dst = f(src, v) with v the value of the element's line, of which a lane has two: one for the
// pairs 0 and 2, one for 1 and 3.
template <class F, register_tile D, register_tile S, register_vector V>
KITTENS_DEVICE void map_across(F f, D& dst, const S& src, const V& vec) {
#pragma unroll
  for (int line = 0; line < D::lines; ++line) {
    const float v[2] = {float_run<V>(vec, 2 * line)[0], float_run<V>(vec, 2 * line + 1)[0]};
#pragma unroll
    for (int i = 0; i < D::line_tiles * D::kPairs; ++i) {
      const int t = i / D::kPairs, p = i % D::kPairs;
      const float_pair in(src, line, t, p);
      dst.set(line, t, p, f(in.x, v[p % 2]), f(in.y, v[p % 2]));
    }
  }
}

// dst = f(src, v) with v the value of the element's place along its line: a pair for each pair.
template <class F, register_tile D, register_tile S, register_vector V>
KITTENS_DEVICE void map_along(F f, D& dst, const S& src, const V& vec) {
#pragma unroll
  for (int line = 0; line < D::lines; ++line) {
#pragma unroll
    for (int i = 0; i < D::line_tiles * D::kPairs; ++i) {
      const int t = i / D::kPairs, p = i % D::kPairs;
      const float_run<V> v(vec, 2 * t + p / 2);
      const float_pair in(src, line, t, p);
      dst.set(line, t, p, f(in.x, v[0]), f(in.y, v[1]));
    }
  }
}

}  // namespace detail

// dst[r][c] = f(float(src[r][c])…) for tiles of one layout; the element types may differ.
template <class F, register_tile D, register_tile... S>
KITTENS_DEVICE void map(F f, D& dst, const S&... src) {
  detail::check_same_lanes<D, S...>();
#pragma unroll
  for (int line = 0; line < D::lines; ++line) {
#pragma unroll
    for (int i = 0; i < D::line_tiles * D::kPairs; ++i) {
      const int t = i / D::kPairs, p = i % D::kPairs;
      detail::map_pair(f, dst, line, t, p, detail::float_pair(src, line, t, p)...);
    }
  }
}

// dst[r][c] = f(float(src[r][c]), float(vec[r])), with a vector like D::col_vec of any type.
template <class F, register_tile D, register_tile S, register_vector V>
KITTENS_DEVICE void map_rows(F f, D& dst, const S& src, const V& vec) {
  detail::check_same_lanes<D, S>();
  detail::check_col_vec<V, D>();
  if constexpr (D::is_row) {
    detail::map_across(f, dst, src, vec);
  } else {
    detail::map_along(f, dst, src, vec);
  }
}

// dst[r][c] = f(float(src[r][c]), float(vec[c])), with a vector like D::row_vec of any type.
template <class F, register_tile D, register_tile S, register_vector V>
KITTENS_DEVICE void map_cols(F f, D& dst, const S& src, const V& vec) {
  detail::check_same_lanes<D, S>();
  detail::check_row_vec<V, D>();
  if constexpr (D::is_row) {
    detail::map_along(f, dst, src, vec);
  } else {
    detail::map_across(f, dst, src, vec);
  }
}

// Copies, converting the element type.
template <register_tile D, register_tile S>
KITTENS_DEVICE void copy(D& dst, const S& src) {
  detail::check_same_lanes<D, S>();
  if constexpr (std::same_as<D, S>) {
    dst = src;
  } else {
    map([](float x) { return x; }, dst, src);
  }
}

// name_row(dst, src, vec): a value per row; name_col(dst, src, vec): a value per column. Of shared
// tiles too, with shared vectors.
#define KITTENS_BROADCAST(name)                                        \
  template <tile D, tile S, class V>                                   \
  KITTENS_DEVICE void name##_row(D& dst, const S& src, const V& vec) { \
    map_rows(detail::name##_function{}, dst, src, vec);                \
  }                                                                    \
  template <tile D, tile S, class V>                                   \
  KITTENS_DEVICE void name##_col(D& dst, const S& src, const V& vec) { \
    map_cols(detail::name##_function{}, dst, src, vec);                \
  }
KITTENS_BROADCAST(add)
KITTENS_BROADCAST(sub)
KITTENS_BROADCAST(mul)
KITTENS_BROADCAST(div)
KITTENS_BROADCAST(max)
KITTENS_BROADCAST(min)
#undef KITTENS_BROADCAST

// dst[r][c] = vec[r]; broadcast_col: vec[c].
template <register_tile D, register_vector V>
KITTENS_DEVICE void broadcast_row(D& dst, const V& vec) {
  zero(dst);
  map_rows(detail::second_function{}, dst, dst, vec);
}
template <register_tile D, register_vector V>
KITTENS_DEVICE void broadcast_col(D& dst, const V& vec) {
  zero(dst);
  map_cols(detail::second_function{}, dst, dst, vec);
}

}  // namespace kittens
