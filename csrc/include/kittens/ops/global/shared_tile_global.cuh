// Shared tiles from and to global memory, by the threads of a group: 16 bytes an access where
// addresses and the number of columns allow, else element by element.
#pragma once

#include "kittens/ops/global/tile_window.cuh"

namespace kittens::detail {

// How the threads of a group share the runs of N elements of a tile: neighbouring threads take
// neighbouring runs, row after row.
template <int Warps, shared_tile S, int N>
struct run_shares {
  static constexpr int kThreads = Warps * kWarp;
  static constexpr int kRowRuns = S::cols / N, kRuns = S::rows * kRowRuns;
  static constexpr int kSteps = (kRuns + kThreads - 1) / kThreads;  // runs of a thread
  static constexpr int kBatch = kSteps < 8 ? kSteps : 8;            // loads under way at once
  static constexpr int kBatches = (kSteps + kBatch - 1) / kBatch;
  static constexpr int kUnroll = N > 1 && kBatches <= 4 ? kBatches : 1;

  // Whether a thread stays in its column: each step then goes down by as many rows.
  static constexpr bool kStraight = kThreads % kRowRuns == 0;
  static constexpr int kStepRows = kStraight ? kThreads / kRowRuns : 0;
  static constexpr bool kMovesIndex =
      kStraight && (kStepRows % 8 == 0 || (kStepRows & (kStepRows - 1)) == 0);

  const int thread = group_thread<Warps>();
  // The thread's first run.
  const int first_row = kStraight ? thread / kRowRuns : 0;
  const int first_col = kStraight ? thread % kRowRuns * N : 0;
  const int first_index = S::index(first_row, first_col);

  KITTENS_DEVICE bool has(int step) const {
    const int steps_of_all = kRuns / kThreads;
    return step < steps_of_all || step * kThreads + thread < kRuns;
  }
  // Where the run of a step is, from the first one.
  KITTENS_DEVICE int row(int step) const {
    return kStraight ? step * kStepRows : (step * kThreads + thread) / kRowRuns;
  }
  KITTENS_DEVICE int col(int step) const {
    return kStraight ? 0 : (step * kThreads + thread) % kRowRuns * N;
  }
  KITTENS_DEVICE int index(int step) const {
    if constexpr (kMovesIndex) {
      return moved_index<S>(first_index, row(step), 0);
    } else {
      return S::index(first_row + row(step), first_col + col(step));
    }
  }
};

// The elements that one access moves: 16 bytes of the wider of the two types.
template <shared_tile S, class T>
inline constexpr int run_of =
    16 / (sizeof(T) > sizeof(typename S::dtype) ? int(sizeof(T)) : int(sizeof(typename S::dtype)));

template <int Warps, int N, shared_tile S, class T, bool IsBounded>
KITTENS_DEVICE void load_runs(S& dst, const tile_window<T, IsBounded>& src) {
  using from = std::remove_const_t<T>;
  using to = typename S::dtype;
  using shares = run_shares<Warps, S, N>;
  const shares mine{};
  const tile_window from_first = src.from(mine.first_row, mine.first_col);
#pragma unroll(shares::kUnroll)
  for (int first = 0; first < shares::kSteps; first += shares::kBatch) {
    lane_run<from, N> loaded[shares::kBatch];
#pragma unroll
    for (int i = 0; i < shares::kBatch; ++i) {
      const int row = mine.row(first + i), col = mine.col(first + i);
      run_access<from, N>::load(loaded[i], from_first.at(row, col),
                                mine.has(first + i) && from_first.has(row, col));
    }
#pragma unroll
    for (int i = 0; i < shares::kBatch; ++i) {
      if (!mine.has(first + i)) continue;
      lane_run<to, N> stored;
      convert_run(stored, loaded[i]);
      run_access<to, N>::store_shared(&dst.data[mine.index(first + i)], stored);
    }
  }
}

template <int Warps, int N, shared_tile S, class T, bool IsBounded>
KITTENS_DEVICE void store_runs(const tile_window<T, IsBounded>& dst, const S& src) {
  using from = typename S::dtype;
  using shares = run_shares<Warps, S, N>;
  const shares mine{};
  const tile_window from_first = dst.from(mine.first_row, mine.first_col);
#pragma unroll(shares::kUnroll)
  for (int first = 0; first < shares::kSteps; first += shares::kBatch) {
    lane_run<from, N> loaded[shares::kBatch];
#pragma unroll
    for (int i = 0; i < shares::kBatch; ++i) {
      if (!mine.has(first + i)) continue;
      run_access<from, N>::load_shared(loaded[i], &src.data[mine.index(first + i)]);
    }
#pragma unroll
    for (int i = 0; i < shares::kBatch; ++i) {
      const int row = mine.row(first + i), col = mine.col(first + i);
      if (!mine.has(first + i) || !from_first.has(row, col)) continue;
      lane_run<T, N> stored;
      convert_run(stored, loaded[i]);
      run_access<T, N>::store(from_first.at(row, col), stored);
    }
  }
}

// dst = the window; zero where it has nothing.
template <int Warps, shared_tile S, class T, bool IsBounded>
KITTENS_DEVICE void load_tile(S& dst, const tile_window<T, IsBounded>& src) {
  constexpr int kRun = run_of<S, T>;
  if (src.template moves_in_runs<kRun>()) return load_runs<Warps, kRun>(dst, src);
  load_runs<Warps, 1>(dst, src);
}

// The window = src, where it has something.
template <int Warps, shared_tile S, class T, bool IsBounded>
KITTENS_DEVICE void store_tile(const tile_window<T, IsBounded>& dst, const S& src) {
  constexpr int kRun = run_of<S, T>;
  if (dst.template moves_in_runs<kRun>()) return store_runs<Warps, kRun>(dst, src);
  store_runs<Warps, 1>(dst, src);
}

// dst = the window, by asynchronous copies of 16 bytes. Where those cannot be, by ordinary loads
// and stores: a wait for the copies then has nothing to wait for.
template <int Warps, shared_tile S, class T, bool IsBounded>
KITTENS_DEVICE void load_tile_async(S& dst, const tile_window<T, IsBounded>& src) {
  using access = run_access<std::remove_const_t<T>, run_of<S, T>>;
  using shares = run_shares<Warps, S, run_of<S, T>>;
  if (!src.template moves_in_runs<run_of<S, T>>()) return load_runs<Warps, 1>(dst, src);
  const shares mine{};
  const tile_window from_first = src.from(mine.first_row, mine.first_col);
#pragma unroll(shares::kUnroll* shares::kBatch)
  for (int step = 0; step < shares::kSteps; ++step) {
    const int row = mine.row(step), col = mine.col(step);
    if (!mine.has(step)) continue;
    access::load_async(&dst.data[mine.index(step)], from_first.at(row, col),
                       from_first.has(row, col));
  }
}

}  // namespace kittens::detail
