// Rows of at most 256 columns, such as the heads that a norm of queries and keys works on: a few
// lanes hold one, and a warp holds several.
#pragma once

#include <bit>

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// How the host spreads rows over lanes.
struct narrow_layout {
  int log2_lanes;  // of a row
  float inverse_width;

  static narrow_layout of(int64_t width, norm_narrow_shape shape) {
    return {std::countr_zero(unsigned(shape.lanes)), 1.0f / float(width)};
  }
};

// Adds each of the values over the lanes of a row; all of them get the sums.
template <int Count>
KITTENS_DEVICE void sum_lanes(float (&value)[Count], int lanes) {
  for (int step = lanes >> 1; step > 0; step >>= 1) {
#pragma unroll
    for (int i = 0; i < Count; ++i) value[i] += arch::shuffle_xor(value[i], step);
  }
}

// Where a lane stands in its row, of which it holds `Elements` in runs of `Run`: run j starts at
// column (j · lanes + lane) · Run.
template <int Run, int Elements>
struct narrow_place {
  static constexpr int run = Run, elements = Elements, runs = Elements / Run;
  using values = float[Elements];
  int lane, lanes, group, log2_lanes, width;

  KITTENS_DEVICE narrow_place(const narrow_layout& layout, int64_t width)
      : lane(arch::thread_id() & ((1 << layout.log2_lanes) - 1)),
        lanes(1 << layout.log2_lanes),
        group(arch::thread_id() >> layout.log2_lanes),
        log2_lanes(layout.log2_lanes),
        width(int(width)) {}

  // The block's groups of `threads` threads have rows next to each other.
  KITTENS_DEVICE int groups(int threads) const { return threads >> log2_lanes; }
  KITTENS_DEVICE int64_t row(int block, int threads) const {
    return int64_t(block) * groups(threads) + group;
  }

  KITTENS_DEVICE int column(int run) const { return (run * lanes + lane) * Run; }
  KITTENS_DEVICE bool inside(int run) const { return column(run) < width; }
};

// What a lane has loaded of a row, as it lies in memory; zero past the last column, and where the
// row is not `there`.
template <class T, class Place>
struct narrow_run {
  lane_run<T, Place::run> data[Place::runs];

  template <bool EvictLast = false>
  KITTENS_DEVICE void load(const Place& at, const T* row, bool there) {
#pragma unroll
    for (int j = 0; j < at.runs; ++j) {
      using access = kittens::detail::run_access<T, Place::run>;
      access::template load<EvictLast>(data[j], row + at.column(j), there && at.inside(j));
    }
  }
  KITTENS_DEVICE void get(typename Place::values& values) const {
#pragma unroll
    for (int j = 0; j < Place::runs; ++j) {
      float run[Place::run];
      data[j].get(run);
#pragma unroll
      for (int i = 0; i < Place::run; ++i) values[j * Place::run + i] = run[i];
    }
  }
};

template <class T, class Place>
KITTENS_DEVICE void store_narrow(T* row, const Place& at, const typename Place::values& values,
                                 bool there = true) {
  constexpr int kRun = Place::run;
#pragma unroll
  for (int j = 0; j < Place::runs; ++j) {
    float run[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) run[i] = values[j * kRun + i];
    lane_run<T, kRun> data;
    data.set(run);
    kittens::detail::run_access<T, kRun>::store(row + at.column(j), data, there && at.inside(j));
  }
}

// A [width] parameter of type T or float32; `otherwise` where null, else `offset` is added.
template <class T, class Place>
KITTENS_DEVICE void load_narrow_parameter(typename Place::values& dst, const Place& at,
                                          const void* data, dtype type, float otherwise,
                                          float offset) {
  const auto load_as = [&]<class P>(const P* values) {
    narrow_run<P, Place> run;
    run.load(at, values, true);
    run.get(dst);
  };
  if (data == nullptr) {
#pragma unroll
    for (float& value : dst) value = otherwise;
  } else if (type == dtype::float32) {
    load_as(static_cast<const float*>(data));
  } else {
    load_as(static_cast<const T*>(data));
  }
  if (offset == 0.0f) return;
#pragma unroll
  for (float& value : dst) value += offset;
}

// The factors of dropout for a lane's elements of row r.
template <class Place>
KITTENS_DEVICE void narrow_factors(typename Place::values& factor, const Place& at,
                                   const dropout_mask& mask, int64_t r) {
  constexpr int kRun = Place::run;
#pragma unroll
  for (int j = 0; j < Place::runs; ++j) {
    float run[kRun];
    mask.factors(run, r * at.width + at.column(j));
#pragma unroll
    for (int i = 0; i < kRun; ++i) factor[j * kRun + i] = run[i];
  }
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
