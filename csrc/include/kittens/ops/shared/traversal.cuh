// How the threads of a group go over shared tiles and vectors together, element by element: what
// ops/shared/elementwise.cuh is made of. Every thread reads and writes elements of its own alone,
// so the destination may be a source. Tiles are accessed 16 bytes at a time.
#pragma once

#include "kittens/ops/global/shared_tile_global.cuh"
#include "kittens/ops/register/vector_map.cuh"

namespace kittens::detail {

// Elements of a run: 16 bytes of the widest type.
template <class... Tiles>
inline constexpr int common_run = ((sizeof(typename Tiles::dtype) == 4) || ...) ? 4 : 8;

// The runs of N elements of a source that a thread reads, some at a time, as floats.
template <int Warps, int N, shared_tile S>
struct shared_runs {
  using T = typename S::dtype;
  using shares = run_shares<Warps, S, N>;
  static constexpr int kBatch = shares::kSteps < 4 ? shares::kSteps : 4;

  struct values {
    float value[N];
    KITTENS_DEVICE float operator[](int i) const { return value[i]; }
  };

  const S& tile;
  const shares mine{};
  lane_run<T, N> runs[kBatch] = {};

  KITTENS_DEVICE explicit shared_runs(const S& tile) : tile(tile) {}
  KITTENS_DEVICE void load(int first) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!mine.has(first + i)) continue;
      run_access<T, N>::load_shared(runs[i], &tile.data[mine.index(first + i)]);
    }
  }
  KITTENS_DEVICE values get(int i) const {
    values v;
    runs[i].get(v.value);
    return v;
  }
};

template <int Warps, int N, class F, shared_tile D, class... Runs>
KITTENS_DEVICE void map_batches(F f, D& dst, Runs... src) {
  using T = typename D::dtype;
  using of_dst = shared_runs<Warps, N, D>;
  constexpr int kSteps = of_dst::shares::kSteps, kBatch = of_dst::kBatch;
  const typename of_dst::shares mine{};
#pragma unroll 1
  for (int first = 0; first < kSteps; first += kBatch) {
    (src.load(first), ...);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!mine.has(first + i)) continue;
      float out[N];
      f(out, mine.first_row + mine.row(first + i), mine.first_col + mine.col(first + i),
        src.get(i)...);
      lane_run<T, N> stored;
      stored.set(out);
      run_access<T, N>::store_shared(&dst.data[mine.index(first + i)], stored);
    }
  }
}

// Calls f(out, row, col, in…) for each run of dst, which begins at (row, col): `out` becomes the
// run, and `in` are those of the sources. The tiles may differ in layout and element type.
template <int Warps, class F, shared_tile D, class... S>
KITTENS_DEVICE void map_runs(F f, D& dst, const S&... src) {
  static_assert((shared_tile<S> && ...),
                "a map on a shared tile takes shared tiles (load and store move to and from "
                "registers)");
  if constexpr ((shared_tile<S> && ...)) {
    static_assert(((D::rows == S::rows && D::cols == S::cols) && ...),
                  "the shared tiles must have the same rows and columns");
    constexpr int kRun = common_run<D, S...>;
    map_batches<Warps, kRun>(f, dst, shared_runs<Warps, kRun, S>(src)...);
  }
}

// The same with f(row, col, x…) of single elements.
template <int Warps, class F, shared_tile D, class... S>
KITTENS_DEVICE void map_elements(F f, D& dst, const S&... src) {
  map_runs<Warps>(
      [=](auto& out, int row, int col, const auto&... in) {
        constexpr int kRun = sizeof(out) / sizeof(float);
#pragma unroll
        for (int i = 0; i < kRun; ++i) out[i] = f(row, col + i, in[i]...);
      },
      dst, src...);
}

// dst = src, converted; no bit changes where the types are the same.
template <int Warps, shared_tile D, shared_tile S>
KITTENS_DEVICE void copy_runs(D& dst, const S& src) {
  static_assert(D::rows == S::rows && D::cols == S::cols,
                "the shared tiles must have the same rows and columns");
  constexpr int kRun = common_run<D, S>;
  using of_src = shared_runs<Warps, kRun, S>;
  using T = typename D::dtype;
  of_src from(src);
  const run_shares<Warps, D, kRun> mine;
#pragma unroll 1
  for (int first = 0; first < of_src::shares::kSteps; first += of_src::kBatch) {
    from.load(first);
#pragma unroll
    for (int i = 0; i < of_src::kBatch; ++i) {
      if (!mine.has(first + i)) continue;
      lane_run<T, kRun> stored;
      convert_run(stored, from.runs[i]);
      run_access<T, kRun>::store_shared(&dst.data[mine.index(first + i)], stored);
    }
  }
}

// ---- vectors, which neighbouring threads take element by element

template <shared_vector V>
KITTENS_DEVICE float element_at(const V& v, int i) {
  lane_run<typename V::dtype, 1> element;
  run_access<typename V::dtype, 1>::load_shared(element, &v.data[i]);
  return convert<float>(element.words[0]);
}

template <shared_vector V>
KITTENS_DEVICE void set_element(V& v, int i, float value) {
  using T = typename V::dtype;
  run_access<T, 1>::store_shared(&v.data[i], lane_run<T, 1>{{convert<T>(value)}});
}

// values = v[first …], where a run of as many elements begins.
template <int N, shared_vector V>
KITTENS_DEVICE void load_elements_at(float (&values)[N], const V& v, int first) {
  lane_run<typename V::dtype, N> run;
  run_access<typename V::dtype, N>::load_shared(run, &v.data[first]);
  run.get(values);
}

// dst[i] = f(i, src[i]…).
template <int Warps, class F, shared_vector D, class... S>
KITTENS_DEVICE void map_elements(F f, D& dst, const S&... src) {
  static_assert((shared_vector<S> && ...),
                "a map on a shared vector takes shared vectors (load and store move to and from "
                "registers)");
  if constexpr ((shared_vector<S> && ...)) {
    static_assert(((D::length == S::length) && ...),
                  "the shared vectors must have the same length");
    for (int i = group_thread<Warps>(); i < D::length; i += Warps * kWarp) {
      set_element(dst, i, f(i, element_at(src, i)...));
    }
  }
}

template <int Warps, shared_vector D, shared_vector S>
KITTENS_DEVICE void copy_runs(D& dst, const S& src) {
  static_assert(D::length == S::length, "the shared vectors must have the same length");
  using to = typename D::dtype;
  using from = typename S::dtype;
  for (int i = group_thread<Warps>(); i < D::length; i += Warps * kWarp) {
    lane_run<from, 1> loaded;
    lane_run<to, 1> stored;
    run_access<from, 1>::load_shared(loaded, &src.data[i]);
    convert_run(stored, loaded);
    run_access<to, 1>::store_shared(&dst.data[i], stored);
  }
}

}  // namespace kittens::detail
