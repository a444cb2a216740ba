// Matrix products of one warp whose right side is in shared memory (mma.sync, ldmatrix): a and d in
// registers, as in ops/register/tile_mma.cuh; d may be c.
//
//   mma_AB(d, a, b, c)      d = a·b + c      a [M, K] row layout   b [K, N] shared
//   mma_ABt(d, a, b, c)     d = a·bᵀ + c     a [M, K] row layout   b [N, K] shared
//   mm_AB(d, a, b) …        the same without c
//
// b is a shared tile of bf16 or half, or some rows of one, rows_of<N>(tile, first). Each of its
// 16 × 16 fragments is read when it is needed, for all rows of a: so b takes four registers instead
// of a tile's. And it is read in the order in which mma.sync takes it, a pair of neighbouring
// registers for eight columns: of a tile that load() has read, each fragment costs four moves.
#pragma once

#include "kittens/ops/register/tile_mma.cuh"
#include "kittens/ops/shared/register_tile_shared.cuh"

namespace kittens {

namespace detail {

// The tile that a right side is, or has its rows of.
template <class S>
struct tile_of_rows {
  using type = S;
};
template <class S, int Rows>
struct tile_of_rows<tile_rows<S, Rows>> {
  using type = S;
};

template <class B>
concept shared_right_side = shared_tile<B> || right_side_tile<B>;

// d += a·b, or a·bᵀ.
template <bool Transposed, register_tile D, register_tile A, shared_right_side B>
KITTENS_DEVICE void accumulate_mma(D& d, const A& a, const B& b) {
  using T = typename A::dtype;
  using S = typename tile_of_rows<B>::type;
  // Of the four matrices, the first two make a pair: the same eight columns of the product.
  using order = std::conditional_t<Transposed, ducks::rt_layout::col, ducks::rt_layout::row>;
  const int first = matrix_row<rt<T, kBase, kBase, order>, S>(arch::lane_id());
#pragma unroll
  for (int k = 0; k < A::line_tiles; ++k) {  // outermost: neighbouring products are independent
#pragma unroll
    for (int n = 0; n < D::line_tiles; ++n) {
      uint32_t right[4];
      const int row = kBase * (Transposed ? n : k), col = kBase * (Transposed ? k : n);
      arch::load_matrix<!Transposed>(right, &b.data[moved_index<S>(first, row, col)]);
#pragma unroll
      for (int m = 0; m < A::lines; ++m) {
        uint32_t left[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = a.data[m][k * 4 + i];
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // eight columns each
          float sums[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] = d.data[m][(2 * n + half) * 4 + i];
          arch::mma_m16n8k16<T>(sums, left, {right[2 * half], right[2 * half + 1]}, sums);
#pragma unroll
          for (int i = 0; i < 4; ++i) d.data[m][(2 * n + half) * 4 + i] = sums[i];
        }
      }
    }
  }
}

// The register tile that b would be: what the product accepts, it accepts of b too.
template <class B, bool Transposed>
using loaded_right_side =
    rt<typename B::dtype, B::rows, B::cols,
       std::conditional_t<Transposed, ducks::rt_layout::row, ducks::rt_layout::col>>;

}  // namespace detail

#define KITTENS_MMA_SHARED(name, transposed)                                                \
  template <register_tile D, register_tile A, detail::shared_right_side B, register_tile C> \
  KITTENS_DEVICE void mma_##name(D& d, const A& a, const B& b, const C& c) {                \
    detail::check_mma<false, transposed, D, A, detail::loaded_right_side<B, transposed>>(); \
    static_assert(std::same_as<C, D>, "mma: c must be a tile like d");                      \
    d = c;                                                                                  \
    detail::accumulate_mma<transposed>(d, a, b);                                            \
  }                                                                                         \
  template <register_tile D, register_tile A, detail::shared_right_side B>                  \
  KITTENS_DEVICE void mm_##name(D& d, const A& a, const B& b) {                             \
    detail::check_mma<false, transposed, D, A, detail::loaded_right_side<B, transposed>>(); \
    zero(d);                                                                                \
    detail::accumulate_mma<transposed>(d, a, b);                                            \
  }
KITTENS_MMA_SHARED(AB, false)
KITTENS_MMA_SHARED(ABt, true)
#undef KITTENS_MMA_SHARED

}  // namespace kittens
