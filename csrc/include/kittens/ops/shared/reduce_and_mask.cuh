// Reductions and masks of tiles and vectors in shared memory, by one warp or by a group of warps
// together; and, of a group, what one can say of the tiles that its warps hold in registers, of
// which warp 0 has the top rows.
//
//   row_sum(sv, st)   col_max(sv, st, accum)   sum(number, sv)   tril(st, st, diagonal, value)
//   warpgroup::row_sum(sv, st)   …          four warps together
//   warpgroup::tril(rt, rt, …)              of the group's tile, each warp its own rows
//
// Sums are made in float, in an order that the types alone determine, and rounded once. Barriers
// and proxy fences are as in ops/shared/elementwise.cuh; accum may be the destination.
#pragma once

#include "kittens/ops/register/tile_mask.cuh"
#include "kittens/ops/register/tile_reduce.cuh"
#include "kittens/ops/shared/elementwise.cuh"
#include "kittens/ops/shared/reductions.cuh"

namespace kittens {

namespace detail {

// What becomes of the value that op makes of a row or column.
struct without_accum {
  KITTENS_DEVICE float operator()(int, float value) const { return value; }
};
template <class F, shared_vector A>
struct with_accum {
  const A& accum;
  KITTENS_DEVICE float operator()(int i, float value) const {
    return F{}(element_at(accum, i), value);
  }
};

KITTENS_INLINE int clamp_to(int n, int low, int high) {
  return n < low ? low : n > high ? high : n;
}

}  // namespace detail

// By Warps warps.
template <int Warps>
struct tile_reductions : tile_elementwise<Warps> {
  using tile_elementwise<Warps>::max, tile_elementwise<Warps>::min;  // of two operands

  // ---- vec = op over each row, or column; with accum, that and accum. Of a group's register
  // tiles, each warp reduces its own rows to its own vector.

#define KITTENS_GROUP_REDUCE(name, function)                                                    \
  template <class V, tile R>                                                                    \
  KITTENS_DEVICE static void row_##name(V& vec, const R& src) {                                 \
    if constexpr (register_tile<R>) {                                                           \
      kittens::row_##name(vec, src);                                                            \
    } else if constexpr (detail::check_shared_vec<true, R, V>()) {                              \
      detail::reduce_shared_rows<Warps>(detail::function##_function{}, detail::without_accum{}, \
                                        vec, src);                                              \
    }                                                                                           \
  }                                                                                             \
  template <class V, tile R, class A>                                                           \
  KITTENS_DEVICE static void row_##name(V& vec, const R& src, const A& accum) {                 \
    using op = detail::function##_function;                                                     \
    if constexpr (register_tile<R>) {                                                           \
      kittens::row_##name(vec, src, accum);                                                     \
    } else if constexpr (detail::check_shared_vec<true, R, V>() &&                              \
                         detail::check_shared_vec<true, R, A>()) {                              \
      detail::reduce_shared_rows<Warps>(op{}, detail::with_accum<op, A>{accum}, vec, src);      \
    }                                                                                           \
  }                                                                                             \
  template <class V, tile R>                                                                    \
  KITTENS_DEVICE static void col_##name(V& vec, const R& src) {                                 \
    check_columns<R>();                                                                         \
    if constexpr (register_tile<R>) {                                                           \
      kittens::col_##name(vec, src);                                                            \
    } else if constexpr (detail::check_shared_vec<false, R, V>()) {                             \
      detail::reduce_shared_cols<Warps>(detail::function##_function{}, detail::without_accum{}, \
                                        vec, src);                                              \
    }                                                                                           \
  }                                                                                             \
  template <class V, tile R, class A>                                                           \
  KITTENS_DEVICE static void col_##name(V& vec, const R& src, const A& accum) {                 \
    using op = detail::function##_function;                                                     \
    check_columns<R>();                                                                         \
    if constexpr (register_tile<R>) {                                                           \
      kittens::col_##name(vec, src, accum);                                                     \
    } else if constexpr (detail::check_shared_vec<false, R, V>() &&                             \
                         detail::check_shared_vec<false, R, A>()) {                             \
      detail::reduce_shared_cols<Warps>(op{}, detail::with_accum<op, A>{accum}, vec, src);      \
    }                                                                                           \
  }                                                                                             \
  /* Of a vector: the number is the same in every lane, and each warp does all of it. */        \
  template <shared_vector V, class... Accum>                                                    \
  KITTENS_DEVICE static void name(float& dst, const V& src, Accum... accum) {                   \
    kittens::name(dst, src, accum...);                                                          \
  }
  KITTENS_GROUP_REDUCE(sum, add)
  KITTENS_GROUP_REDUCE(prod, mul)
  KITTENS_GROUP_REDUCE(max, max)
  KITTENS_GROUP_REDUCE(min, min)
#undef KITTENS_GROUP_REDUCE

  // ---- dst = src, and `value` in a part of it. A group's register tile is one tile, the rows of
  // its warps one below the other.

  template <tile D, tile S>
  KITTENS_DEVICE static void tril(D& dst, const S& src, int diagonal, float value) {
    if constexpr (register_tile<D>) {
      kittens::tril(dst, src, shifted(detail::clamp_to(diagonal, -Warps * D::rows, D::cols), dst),
                    value);
    } else {
      fill_where([=](int r, int c) { return c - r > diagonal; }, dst, src, value);
    }
  }
  template <tile D, tile S>
  KITTENS_DEVICE static void triu(D& dst, const S& src, int diagonal, float value) {
    if constexpr (register_tile<D>) {
      kittens::triu(dst, src, shifted(detail::clamp_to(diagonal, -Warps * D::rows, D::cols), dst),
                    value);
    } else {
      fill_where([=](int r, int c) { return c - r < diagonal; }, dst, src, value);
    }
  }
  template <tile D, tile S>
  KITTENS_DEVICE static void make_causal(D& dst, const S& src, float value) {
    static_assert(detail::group_rows<Warps, D> == D::cols,
                  "make_causal takes a square tile (tril takes any, and a diagonal)");
    tril(dst, src, 0, value);
  }
  template <tile D, tile S>
  KITTENS_DEVICE static void right_fill(D& dst, const S& src, int first_col, float value) {
    if constexpr (register_tile<D>) {
      kittens::right_fill(dst, src, first_col, value);
    } else {
      fill_where([=](int, int c) { return c >= first_col; }, dst, src, value);
    }
  }
  template <tile D, tile S>
  KITTENS_DEVICE static void left_fill(D& dst, const S& src, int first_col, float value) {
    if constexpr (register_tile<D>) {
      kittens::left_fill(dst, src, first_col, value);
    } else {
      fill_where([=](int, int c) { return c < first_col; }, dst, src, value);
    }
  }
  template <tile D, tile S>
  KITTENS_DEVICE static void lower_fill(D& dst, const S& src, int first_row, float value) {
    if constexpr (register_tile<D>) {
      const int row = detail::clamp_to(first_row, 0, Warps * D::rows);
      kittens::lower_fill(dst, src, shifted(row, dst, -1), value);
    } else {
      fill_where([=](int r, int) { return r >= first_row; }, dst, src, value);
    }
  }
  template <tile D, tile S>
  KITTENS_DEVICE static void upper_fill(D& dst, const S& src, int first_row, float value) {
    if constexpr (register_tile<D>) {
      const int row = detail::clamp_to(first_row, 0, Warps * D::rows);
      kittens::upper_fill(dst, src, shifted(row, dst, -1), value);
    } else {
      fill_where([=](int r, int) { return r < first_row; }, dst, src, value);
    }
  }
  // Vectors: elements from first_col on; before it.
  template <shared_vector D, shared_vector S>
  KITTENS_DEVICE static void right_fill(D& dst, const S& src, int first_col, float value) {
    detail::map_elements<Warps>([=](int i, float x) { return i >= first_col ? value : x; }, dst,
                                src);
  }
  template <shared_vector D, shared_vector S>
  KITTENS_DEVICE static void left_fill(D& dst, const S& src, int first_col, float value) {
    detail::map_elements<Warps>([=](int i, float x) { return i < first_col ? value : x; }, dst,
                                src);
  }

 private:
  template <class R>
  KITTENS_INLINE static constexpr void check_columns() {
    static_assert(Warps == 1 || shared_tile<R>,
                  "the columns of a group's register tile are in several warps: store it, and "
                  "reduce the shared tile");
  }
  // A number of rows, as this warp sees it from its own first row.
  template <register_tile D>
  KITTENS_DEVICE static int shifted(int n, const D&, int direction = 1) {
    return n + direction * detail::group_warp<Warps>() * D::rows;
  }
  template <class Where, shared_tile D, class S>
  KITTENS_DEVICE static void fill_where(Where where, D& dst, const S& src, float value) {
    detail::map_elements<Warps>([=](int r, int c, float x) { return where(r, c) ? value : x; }, dst,
                                src);
    arch::fence_async_proxy();
  }
};

// ---- by one warp

// op over the vector's elements, in float; sum, prod, max and min are in
// ops/register/vector_reduce.cuh.
template <class F, shared_vector V>
KITTENS_DEVICE float reduce(F op, const V& src) {
  return detail::reduce_elements<V::length>(op, [&](int i) { return detail::element_at(src, i); });
}

// dst = Σ a[i] · b[i].
template <shared_vector A, shared_vector B>
KITTENS_DEVICE void dot(float& dst, const A& a, const B& b) {
  static_assert(A::length == B::length, "the shared vectors must have the same length");
  const auto product = [&](int i) { return detail::element_at(a, i) * detail::element_at(b, i); };
  dst = detail::reduce_elements<A::length>(detail::add_function{}, product);
}

#define KITTENS_REDUCE_SHARED(name)                                 \
  template <class V, shared_tile S>                                 \
  KITTENS_DEVICE void name(V& vec, const S& tile) {                 \
    tile_reductions<1>::name(vec, tile);                            \
  }                                                                 \
  template <class V, shared_tile S, class A>                        \
  KITTENS_DEVICE void name(V& vec, const S& tile, const A& accum) { \
    tile_reductions<1>::name(vec, tile, accum);                     \
  }
KITTENS_REDUCE_SHARED(row_sum)
KITTENS_REDUCE_SHARED(row_prod)
KITTENS_REDUCE_SHARED(row_max)
KITTENS_REDUCE_SHARED(row_min)
KITTENS_REDUCE_SHARED(col_sum)
KITTENS_REDUCE_SHARED(col_prod)
KITTENS_REDUCE_SHARED(col_max)
KITTENS_REDUCE_SHARED(col_min)
#undef KITTENS_REDUCE_SHARED

#define KITTENS_FILL_SHARED(name)                                         \
  template <in_shared D, in_shared S>                                     \
  KITTENS_DEVICE void name(D& dst, const S& src, int from, float value) { \
    tile_reductions<1>::name(dst, src, from, value);                      \
  }
KITTENS_FILL_SHARED(tril)
KITTENS_FILL_SHARED(triu)
KITTENS_FILL_SHARED(right_fill)
KITTENS_FILL_SHARED(left_fill)
KITTENS_FILL_SHARED(lower_fill)
KITTENS_FILL_SHARED(upper_fill)
#undef KITTENS_FILL_SHARED

template <shared_tile D, shared_tile S>
KITTENS_DEVICE void make_causal(D& dst, const S& src, float value) {
  tile_reductions<1>::make_causal(dst, src, value);
}

}  // namespace kittens
