// gl: a view of a tensor in global memory, [batch, depth, rows, cols], any strides, last one 1.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/dtype.cuh"

namespace kittens {

// An extent known at compile time (a number) or at run time (kDynamic).
inline constexpr int64_t kDynamic = -1;

namespace detail {

template <int64_t N>
struct extent {
  KITTENS_INLINE constexpr extent(int64_t = N) {}
  KITTENS_INLINE constexpr operator int64_t() const { return N; }
};

template <>
struct extent<kDynamic> {
  int64_t n;
  KITTENS_INLINE constexpr extent(int64_t value = 1) : n(value) {}
  KITTENS_INLINE constexpr operator int64_t() const { return n; }
};

}  // namespace detail

// Where a vector or tile starts. `b` and `d` count elements, and `c` counts vectors (or tiles) of
// the length being moved, so a warp that owns slice w of a row says {0, 0, row, w}. `r` counts
// elements where a vector is moved, and tiles where a tile is: tile (i, j) of a matrix is {0, 0, i,
// j}.
struct coord {
  int64_t b = 0, d = 0, r = 0, c = 0;
};

template <class T, int64_t Batch = kDynamic, int64_t Depth = kDynamic, int64_t Rows = kDynamic,
          int64_t Cols = kDynamic>
  requires element<std::remove_const_t<T>>
struct gl {
  using dtype = std::remove_const_t<T>;

  T* data;
  [[no_unique_address]] detail::extent<Batch> batch;
  [[no_unique_address]] detail::extent<Depth> depth;
  [[no_unique_address]] detail::extent<Rows> rows;
  [[no_unique_address]] detail::extent<Cols> cols;
  int64_t batch_stride, depth_stride, row_stride;  // in elements

  // A matrix [n_rows, n_cols] whose rows lie `stride` elements apart.
  KITTENS_INLINE static gl matrix(T* data, int64_t n_rows, int64_t n_cols, int64_t stride) {
    return {data, 1, 1, n_rows, n_cols, 0, 0, stride};
  }
  // A vector [n_cols].
  KITTENS_INLINE static gl vector(T* data, int64_t n_cols) { return matrix(data, 1, n_cols, 0); }

  KITTENS_INLINE T* row(coord at) const {
    return data + at.b * batch_stride + at.d * depth_stride + at.r * row_stride;
  }
};

template <class G>
inline constexpr bool is_global_tensor = false;
template <class T, int64_t B, int64_t D, int64_t R, int64_t C>
inline constexpr bool is_global_tensor<gl<T, B, D, R, C>> = true;

template <class G>
concept global_tensor = is_global_tensor<std::remove_cvref_t<G>>;

}  // namespace kittens
