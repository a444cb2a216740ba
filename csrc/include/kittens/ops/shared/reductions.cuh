// Reductions of shared tiles over rows and columns, to shared vectors, and of shared vectors to
// numbers: what ops/shared/elementwise.cuh is made of. In float and in an order that depends on the
// tile's type alone, rounded once.
#pragma once

#include "kittens/ops/register/vector_reduce.cuh"
#include "kittens/ops/shared/traversal.cuh"

namespace kittens::detail {

// Elements of an access to a tile.
template <shared_tile S>
inline constexpr int access_run = common_run<S>;

template <shared_tile S>
KITTENS_DEVICE void load_run(float (&values)[access_run<S>], const S& tile, int row, int col) {
  using T = typename S::dtype;
  lane_run<T, access_run<S>> run;
  run_access<T, access_run<S>>::load_shared(run, &tile.data[S::index(row, col)]);
  run.get(values);
}

// Lanes that share a row: as many as a row of a chunk has 16-byte pieces, so that the rows of a
// warp's access are neighbours in memory. Fewer where those do not divide the pieces of a row.
template <shared_tile S>
KITTENS_INLINE constexpr int lanes_of_row() {
  constexpr int kPieces = S::cols / access_run<S>;
  if constexpr (S::is_swizzled && S::padding_cols == 0) return S::swizzle_bytes / 16;
  return kPieces % 8 == 0 ? 8 : kPieces % 4 == 0 ? 4 : 2;
}

// vec[r] = finish(r, op over the elements of row r).
template <int Warps, class F, class Finish, shared_vector V, shared_tile S>
KITTENS_DEVICE void reduce_shared_rows(F op, Finish finish, V& vec, const S& tile) {
  static_assert(V::length == S::rows,
                "the shared vector must have one value per row of the shared tile");
  constexpr int kRun = access_run<S>, kLanes = lanes_of_row<S>();
  const int thread = group_thread<Warps>(), lane = thread % kLanes;
#pragma unroll 1
  for (int first = 0; first < S::rows; first += Warps * kWarp / kLanes) {
    const int row = first + thread / kLanes;
    const bool has = row < S::rows;  // who has none goes along, for the exchange between lanes
    float value = 0.0f;
#pragma unroll
    for (int j = 0; j < S::cols / kRun / kLanes; ++j) {
      float in[kRun];
      load_run(in, tile, has ? row : 0, (j * kLanes + lane) * kRun);
#pragma unroll
      for (int i = 0; i < kRun; ++i) value = j + i == 0 ? in[0] : op(value, in[i]);
    }
    value = reduce_lanes<kLanes - 1>(op, value);
    if (has && lane == 0) set_element(vec, row, finish(row, value));
  }
}

// vec[c] = finish(c, op over the elements of column c). Eight lanes share the columns of an access,
// each with every eighth row: under every swizzle those pieces lie in different banks.
template <int Warps, class F, class Finish, shared_vector V, shared_tile S>
KITTENS_DEVICE void reduce_shared_cols(F op, Finish finish, V& vec, const S& tile) {
  static_assert(V::length == S::cols,
                "the shared vector must have one value per column of the shared tile");
  constexpr int kRun = access_run<S>, kLanes = 8, kRuns = S::cols / kRun;
  const int thread = group_thread<Warps>(), lane = thread % kLanes;
#pragma unroll 1
  for (int first = 0; first < kRuns; first += Warps * kWarp / kLanes) {
    const int run = first + thread / kLanes;
    const bool has = run < kRuns;
    const int col = has ? run * kRun : 0;
    float value[kRun];
    load_run(value, tile, lane, col);
#pragma unroll 4
    for (int row = lane + kLanes; row < S::rows; row += kLanes) {
      float in[kRun];
      load_run(in, tile, row, col);
#pragma unroll
      for (int i = 0; i < kRun; ++i) value[i] = op(value[i], in[i]);
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      value[i] = reduce_lanes<kLanes - 1>(op, value[i]);
      if (has && lane == i) set_element(vec, col + i, finish(col + i, value[i]));
    }
  }
}

// op over f(0) … f(Length − 1), the same in every lane of the warp; each warp does all of it.
template <int Length, class F, class Element>
KITTENS_DEVICE float reduce_elements(F op, Element f) {
  constexpr int kFirst = Length < kWarp ? Length : kWarp;  // lanes that have an element
  const int lane = arch::lane_id();
  float value = f(lane < kFirst ? lane : 0);
  for (int i = lane + kWarp; i < Length; i += kWarp) value = op(value, f(i));
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = arch::shuffle_down(value, step);
    // Of lanes 0 … 2·step − 1, all that the steps before have left.
    if (lane < step && lane + step < kFirst) value = op(value, other);
  }
  return arch::shuffle(value, 0);
}

}  // namespace kittens::detail
