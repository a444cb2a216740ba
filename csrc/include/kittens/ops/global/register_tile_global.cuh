// Register tiles from and to global memory, without a detour through shared memory: for tiles that
// are moved once. A warp's access of a pair of columns touches 16 or 32 bytes of each of 8 rows.
#pragma once

#include <cstring>

#include "kittens/ops/global/tile_window.cuh"

namespace kittens::detail {

// Pair p of base tile t of a line, as it is in registers.
template <register_tile R>
KITTENS_DEVICE void set_pair(R& dst, int line, int t, int p,
                             const lane_run<typename R::dtype, 2>& pair) {
#pragma unroll
  for (int i = 0; i < R::kPairWords; ++i) {
    dst.data[line][(t * R::kPairs + p) * R::kPairWords + i] = pair.words[i];
  }
}
template <register_tile R>
KITTENS_DEVICE void get_pair(lane_run<typename R::dtype, 2>& pair, const R& src, int line, int t,
                             int p) {
#pragma unroll
  for (int i = 0; i < R::kPairWords; ++i) {
    pair.words[i] = src.data[line][(t * R::kPairs + p) * R::kPairWords + i];
  }
}

// f(line, t, p, row, col) for this lane's pairs: (row, col) is where a pair lies from where the
// lane's first one does, known at compile time.
template <register_tile R, class F>
KITTENS_DEVICE void for_each_pair(F f) {
#pragma unroll
  for (int line = 0; line < R::lines; ++line) {
#pragma unroll
    for (int t = 0; t < R::line_tiles; ++t) {
#pragma unroll
      for (int p = 0; p < R::kPairs; ++p) {
        const int across = R::across(line, p, 0), along = R::along(t, p, 0);
        f(line, t, p, R::is_row ? across : along, R::is_row ? along : across);
      }
    }
  }
}

// The window as this lane sees it: from the first element that it holds.
template <int Warps, register_tile R, class Window>
KITTENS_DEVICE Window window_of_lane(const Window& tile) {
  const int across = R::across(0, 0, arch::lane_id()), along = R::along(0, 0, arch::lane_id());
  return tile.from(group_warp<Warps>() * R::rows + (R::is_row ? across : along),
                   R::is_row ? along : across);
}

// Pairs as a whole (N = 2, row layout), or element by element.
template <int N, register_tile R, class Window>
KITTENS_DEVICE void load_pairs(R& dst, const Window& src) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(src.data)>>;
  constexpr int kDown = R::is_row ? 0 : 1;  // the second element of a pair, from the first
  for_each_pair<R>([&](int line, int t, int p, int row, int col) {
    lane_run<T, 2> loaded;
    if constexpr (N == 2) {
      run_access<T, 2>::load(loaded, src.at(row, col), src.has(row, col));
    } else {
      lane_run<T, 1> elements[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row + i * kDown, c = col + i * (1 - kDown);
        run_access<T, 1>::load(elements[i], src.at(r, c), src.has(r, c));
      }
      join(loaded, elements);
    }
    lane_run<typename R::dtype, 2> pair;
    convert_run(pair, loaded);
    set_pair(dst, line, t, p, pair);
  });
}

template <int N, register_tile R, class Window>
KITTENS_DEVICE void store_pairs(const Window& dst, const R& src) {
  using T = std::remove_pointer_t<decltype(dst.data)>;
  constexpr int kDown = R::is_row ? 0 : 1;
  for_each_pair<R>([&](int line, int t, int p, int row, int col) {
    lane_run<typename R::dtype, 2> pair;
    get_pair(pair, src, line, t, p);
    lane_run<T, 2> stored;
    convert_run(stored, pair);
    if constexpr (N == 2) {
      if (dst.has(row, col)) run_access<T, 2>::store(dst.at(row, col), stored);
    } else {
      lane_run<T, 1> elements[2];
      split(elements, stored);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row + i * kDown, c = col + i * (1 - kDown);
        if (dst.has(r, c)) run_access<T, 1>::store(dst.at(r, c), elements[i]);
      }
    }
  });
}

// dst = the window; zero where it has nothing.
template <int Warps, register_tile R, class Window>
KITTENS_DEVICE void load_tile(R& dst, const Window& src) {
  const Window lane = window_of_lane<Warps, R>(src);
  if constexpr (R::is_row) {
    if (src.template moves_in_runs<2>()) return load_pairs<2>(dst, lane);
  }
  load_pairs<1>(dst, lane);
}

// The window = src, where it has something.
template <int Warps, register_tile R, class Window>
KITTENS_DEVICE void store_tile(const Window& dst, const R& src) {
  const Window lane = window_of_lane<Warps, R>(dst);
  if constexpr (R::is_row) {
    if (dst.template moves_in_runs<2>()) return store_pairs<2>(lane, src);
  }
  store_pairs<1>(lane, src);
}

}  // namespace kittens::detail
