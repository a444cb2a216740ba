// Register tiles from and to shared tiles: ldmatrix and stmatrix where the shared tile has 16-bit
// elements (in column layout the transposing forms), plain accesses else. No access to a swizzled
// tile has a bank conflict.
#pragma once

#include "kittens/arch/matrix.cuh"
#include "kittens/ops/global/register_tile_global.cuh"
#include "kittens/ops/global/tile_window.cuh"

namespace kittens::detail {

// ---- 16-bit elements in shared memory: a base tile is four matrices of 8 × 8, one for each pair

// Where lane `lane` finds its row (8 elements) of base tile (0, 0): lanes 8·p … 8·p + 7 those of
// the matrix that becomes pair p.
template <register_tile R, shared_tile S>
KITTENS_INLINE constexpr int matrix_row(int lane) {
  const int p = lane / 8;
  const int across = p % 2 * 8, along = p / 2 * 8;
  return R::is_row ? S::index(across + lane % 8, along) : S::index(along + lane % 8, across);
}

// The same, of base tile t of a line, in the rows of this warp.
template <int Warps, register_tile R, shared_tile S>
KITTENS_DEVICE int matrix_row_of(int lane_index, int line, int t) {
  const int across = line * kBase, along = t * kBase;
  return moved_index<S>(lane_index, R::is_row ? across : along, R::is_row ? along : across) +
         group_warp<Warps>() * R::rows * S::chunk_cols;
}

template <int Warps, register_tile R, shared_tile S>
KITTENS_DEVICE void load_matrices(R& dst, const S& src) {
  const int lane_index = matrix_row<R, S>(arch::lane_id());
#pragma unroll
  for (int line = 0; line < R::lines; ++line) {
#pragma unroll
    for (int t = 0; t < R::line_tiles; ++t) {
      uint32_t words[R::kPairs];
      arch::load_matrix<!R::is_row>(words,
                                    &src.data[matrix_row_of<Warps, R, S>(lane_index, line, t)]);
#pragma unroll
      for (int p = 0; p < R::kPairs; ++p) {
        lane_run<typename R::dtype, 2> pair;
        convert_run(pair, lane_run<typename S::dtype, 2>{{words[p]}});
        set_pair(dst, line, t, p, pair);
      }
    }
  }
}

template <int Warps, shared_tile S, register_tile R>
KITTENS_DEVICE void store_matrices(S& dst, const R& src) {
  const int lane_index = matrix_row<R, S>(arch::lane_id());
#pragma unroll
  for (int line = 0; line < R::lines; ++line) {
#pragma unroll
    for (int t = 0; t < R::line_tiles; ++t) {
      uint32_t words[R::kPairs];
#pragma unroll
      for (int p = 0; p < R::kPairs; ++p) {
        lane_run<typename R::dtype, 2> pair;
        get_pair(pair, src, line, t, p);
        lane_run<typename S::dtype, 2> stored;
        convert_run(stored, pair);
        words[p] = stored.words[0];
      }
      arch::store_matrix<!R::is_row>(&dst.data[matrix_row_of<Warps, R, S>(lane_index, line, t)],
                                     words);
    }
  }
}

// ---- plain accesses

// Where the two elements of a lane's first pair are.
struct pair_index {
  int first, second;
};

// Floats of a swizzled tile are accessed one by one, and half of the lanes begin with the second
// element of a pair: an access of the warp to the same column of all pairs would find two rows in
// one bank.
template <register_tile R, shared_tile S>
inline constexpr bool moves_crosswise =
    S::is_swizzled && sizeof(typename S::dtype) == 4 && (R::is_row || S::swizzle_bytes == 64);
// Pairs that are neighbours in memory move together.
template <register_tile R, shared_tile S>
inline constexpr bool moves_pairs = R::is_row && !moves_crosswise<R, S>;

template <register_tile R, shared_tile S>
KITTENS_INLINE constexpr bool begins_with_second(int lane) {
  if (!moves_crosswise<R, S>) return false;
  // The rows that share banks: neighbours among those of 128 bytes, every other one of 64.
  const int row = R::is_row ? R::across(0, 0, lane) : R::along(0, 0, lane);
  return row / (S::swizzle_bytes == 128 ? 1 : 2) % 2 == 1;
}

// In the order in which the lane accesses them.
template <register_tile R, shared_tile S>
KITTENS_INLINE constexpr pair_index pair_of_lane(int lane) {
  const int across = R::across(0, 0, lane), along = R::along(0, 0, lane);
  const pair_index in_order =
      R::is_row ? pair_index{S::index(across, along), S::index(across, along + 1)}
                : pair_index{S::index(along, across), S::index(along + 1, across)};
  return begins_with_second<R, S>(lane) ? pair_index{in_order.second, in_order.first} : in_order;
}

template <class T>
KITTENS_DEVICE void exchange_if(bool condition, lane_run<T, 1> (&elements)[2]) {
  const lane_run<T, 1> first = elements[0];
  elements[0] = condition ? elements[1] : first;
  elements[1] = condition ? first : elements[1];
}

template <int Warps, register_tile R, shared_tile S>
KITTENS_DEVICE void load_elements(R& dst, const S& src) {
  using T = typename S::dtype;
  const pair_index lane = pair_of_lane<R, S>(arch::lane_id());
  const bool crosswise = begins_with_second<R, S>(arch::lane_id());
  const T* data = src.data + group_warp<Warps>() * R::rows * S::chunk_cols;
  for_each_pair<R>([&](int line, int t, int p, int row, int col) {
    lane_run<T, 2> loaded;
    if constexpr (moves_pairs<R, S>) {
      run_access<T, 2>::load_shared(loaded, data + moved_index<S>(lane.first, row, col));
    } else {
      lane_run<T, 1> elements[2];
      run_access<T, 1>::load_shared(elements[0], data + moved_index<S>(lane.first, row, col));
      run_access<T, 1>::load_shared(elements[1], data + moved_index<S>(lane.second, row, col));
      exchange_if(crosswise, elements);
      join(loaded, elements);
    }
    lane_run<typename R::dtype, 2> pair;
    convert_run(pair, loaded);
    set_pair(dst, line, t, p, pair);
  });
}

template <int Warps, shared_tile S, register_tile R>
KITTENS_DEVICE void store_elements(S& dst, const R& src) {
  using T = typename S::dtype;
  const pair_index lane = pair_of_lane<R, S>(arch::lane_id());
  const bool crosswise = begins_with_second<R, S>(arch::lane_id());
  T* data = dst.data + group_warp<Warps>() * R::rows * S::chunk_cols;
  for_each_pair<R>([&](int line, int t, int p, int row, int col) {
    lane_run<typename R::dtype, 2> pair;
    get_pair(pair, src, line, t, p);
    lane_run<T, 2> stored;
    convert_run(stored, pair);
    if constexpr (moves_pairs<R, S>) {
      run_access<T, 2>::store_shared(data + moved_index<S>(lane.first, row, col), stored);
    } else {
      lane_run<T, 1> elements[2];
      split(elements, stored);
      exchange_if(crosswise, elements);
      run_access<T, 1>::store_shared(data + moved_index<S>(lane.first, row, col), elements[0]);
      run_access<T, 1>::store_shared(data + moved_index<S>(lane.second, row, col), elements[1]);
    }
  });
}

template <int Warps, register_tile R, shared_tile S>
KITTENS_DEVICE void load_tile(R& dst, const S& src) {
  if constexpr (half_width<typename S::dtype>) {
    load_matrices<Warps>(dst, src);
  } else {
    load_elements<Warps>(dst, src);
  }
}

template <int Warps, shared_tile S, register_tile R>
KITTENS_DEVICE void store_tile(S& dst, const R& src) {
  if constexpr (half_width<typename S::dtype> && arch::kHasStoreMatrix) {
    store_matrices<Warps>(dst, src);
  } else {
    store_elements<Warps>(dst, src);
  }
}

}  // namespace kittens::detail
