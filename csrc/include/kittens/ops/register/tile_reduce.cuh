// Reductions of a register tile over each row (to a vector like its col_vec) or each column (to one
// like its row_vec). In float, in a fixed order, rounded once.
//
//   row_sum(vec, tile)         vec[r] = Σ tile[r][c] over c; likewise row_prod row_max row_min, and
//                              col_sum … over r. All lanes that hold a value get the same bits.
//   row_sum(vec, tile, accum)  vec[r] = accum[r] + Σ tile[r][c]; vec may be accum
//
// A sum over many tiles needs the exchange between lanes but once, at its end:
//
//   zero(vec);  partial_row_sum(vec, tile, vec) for each tile;  finish_row_sum(vec)
//
// and so for col. In between, each lane's vec is the sum of that lane's elements alone, and may be
// scaled by what is the same in all lanes of a row (of a column).
#pragma once

#include <cmath>

#include "kittens/ops/register/tile_map.cuh"
#include "kittens/ops/register/vector_reduce.cuh"

namespace kittens {

namespace detail {

// The bits of a lane's number in which the lanes differ that share the elements of vector V.
template <register_vector V>
inline constexpr int kSharedBy = (kWarp - 1) & ~V::lane_bits;

// vec[i] = finish(op over the elements of line i that this lane has, chunk, element), where
// vec[i] is vec.data[chunk] [element]. A lane has two lines of each line of base tiles. Two chains,
// of the first and the second elements of the pairs: as many operations as one, half the wait.
template <class F, class Finish, register_vector V, register_tile R>
KITTENS_DEVICE void reduce_along(F op, Finish finish, V& vec, const R& tile) {
#pragma unroll
  for (int i = 0; i < V::chunks; ++i) {
    float_pair chain(tile, i / 2, 0, i % 2);
#pragma unroll
    for (int j = 1; j < 2 * R::line_tiles; ++j) {
      const float_pair next(tile, i / 2, j / 2, j % 2 * 2 + i % 2);
      chain.x = op(chain.x, next.x);
      chain.y = op(chain.y, next.y);
    }
    const float out[1] = {finish(op(chain.x, chain.y), i, 0)};
    vec.data[i].set(out);
  }
}

// vec[i] = finish(op over this lane's elements at place i along the lines, chunk, element).
template <class F, class Finish, register_vector V, register_tile R>
KITTENS_DEVICE void reduce_across(F op, Finish finish, V& vec, const R& tile) {
#pragma unroll
  for (int i = 0; i < V::chunks; ++i) {
    float_pair chain(tile, 0, i / 2, i % 2 * 2);
#pragma unroll
    for (int j = 1; j < 2 * R::lines; ++j) {
      const float_pair next(tile, j / 2, i / 2, i % 2 * 2 + j % 2);
      chain.x = op(chain.x, next.x);
      chain.y = op(chain.y, next.y);
    }
    const float out[2] = {finish(chain.x, i, 0), finish(chain.y, i, 1)};
    vec.data[i].set(out);
  }
}

template <class F, class Finish, register_vector V, register_tile R>
KITTENS_DEVICE void reduce_rows(F op, Finish finish, V& vec, const R& tile) {
  check_col_vec<V, R>();
  if constexpr (R::is_row) {
    reduce_along(op, finish, vec, tile);
  } else {
    reduce_across(op, finish, vec, tile);
  }
}
template <class F, class Finish, register_vector V, register_tile R>
KITTENS_DEVICE void reduce_cols(F op, Finish finish, V& vec, const R& tile) {
  check_row_vec<V, R>();
  if constexpr (R::is_row) {
    reduce_across(op, finish, vec, tile);
  } else {
    reduce_along(op, finish, vec, tile);
  }
}

// The values for `finish`, above.
template <register_vector V, class F>
KITTENS_DEVICE auto over_lanes(F op) {
  return [=](float value, int, int) { return reduce_lanes<kSharedBy<V>>(op, value); };
}
template <register_vector V, class F, class Finish>
KITTENS_DEVICE auto onto(const V& accum, F op, Finish finish) {
  return [&accum, op, finish](float value, int chunk, int i) {
    return op(float_run<V>(accum, chunk)[i], finish(value, chunk, i));
  };
}
KITTENS_DEVICE auto this_lane() {
  return [](float value, int, int) { return value; };
}

}  // namespace detail

#define KITTENS_REDUCE_TILE(name, rows, expression)                                           \
  template <register_vector V, register_tile R>                                               \
  KITTENS_DEVICE void name(V& vec, const R& tile) {                                           \
    const auto op = [](float x, float y) { return expression; };                              \
    detail::reduce_##rows(op, detail::over_lanes<V>(op), vec, tile);                          \
  }                                                                                           \
  template <register_vector V, register_tile R, register_vector A>                            \
    requires same_layout<V, A>                                                                \
  KITTENS_DEVICE void name(V& vec, const R& tile, const A& accum) {                           \
    const auto op = [](float x, float y) { return expression; };                              \
    detail::reduce_##rows(op, detail::onto(accum, op, detail::over_lanes<V>(op)), vec, tile); \
  }
// clang-format off
KITTENS_REDUCE_TILE(row_sum, rows, x + y)
KITTENS_REDUCE_TILE(row_prod, rows, x * y)
KITTENS_REDUCE_TILE(row_max, rows, fmaxf(x, y))
KITTENS_REDUCE_TILE(row_min, rows, fminf(x, y))
KITTENS_REDUCE_TILE(col_sum, cols, x + y)
KITTENS_REDUCE_TILE(col_prod, cols, x * y)
KITTENS_REDUCE_TILE(col_max, cols, fmaxf(x, y))
KITTENS_REDUCE_TILE(col_min, cols, fminf(x, y))
// clang-format on
#undef KITTENS_REDUCE_TILE

#define KITTENS_PARTIAL_SUM(rows, partial_sum, finish_sum)                                      \
  template <register_vector V, register_tile R, register_vector A>                              \
    requires same_layout<V, A>                                                                  \
  KITTENS_DEVICE void partial_sum(V& vec, const R& tile, const A& accum) {                      \
    const auto op = [](float x, float y) { return x + y; };                                     \
    detail::reduce_##rows(op, detail::onto(accum, op, detail::this_lane()), vec, tile);         \
  }                                                                                             \
  template <register_vector V>                                                                  \
  KITTENS_DEVICE void finish_sum(V& vec) {                                                      \
    static_assert(V::lane_bits != kWarp - 1, "the vector must be a tile's col_vec or row_vec"); \
    const auto op = [](float x, float y) { return x + y; };                                     \
    map([=](float x) { return reduce_lanes<detail::kSharedBy<V>>(op, x); }, vec, vec);          \
  }
KITTENS_PARTIAL_SUM(rows, partial_row_sum, finish_row_sum)
KITTENS_PARTIAL_SUM(cols, partial_col_sum, finish_col_sum)
#undef KITTENS_PARTIAL_SUM

}  // namespace kittens
