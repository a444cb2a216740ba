// Rows of at most 256 columns, such as the heads that a norm of queries and keys works on: a few
// lanes hold one, 8 elements each, and a warp holds several.
#pragma once

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

// How the host spreads rows over lanes.
struct narrow_layout {
  int lanes;  // of a row: a power of two
  float inverse_width;
};

inline constexpr int kNarrowElements = norm_narrow_shape::kElements;
using narrow_values = float[kNarrowElements];

// Adds each of the values over the lanes of a row; all of them get the sums.
template <int Count>
KITTENS_DEVICE void sum_lanes(float (&value)[Count], int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < Count; ++i) value[i] += arch::shuffle_xor(value[i], step);
  }
}

// Where a lane stands in its row. Run j of its runs starts at column (j · lanes + lane) · Run.
template <int Run>
struct narrow_place {
  static constexpr int runs = kNarrowElements / Run;
  int lane, lanes, width;

  KITTENS_DEVICE narrow_place(int lanes, int64_t width)
      : lane(arch::lane_id() & (lanes - 1)), lanes(lanes), width(int(width)) {}

  KITTENS_DEVICE int column(int run) const { return (run * lanes + lane) * Run; }
  KITTENS_DEVICE bool inside(int run) const { return column(run) < width; }
};

// What a lane has loaded of a row, as it lies in memory; zero past the last column, and where the
// row is not `there`.
template <class T, int Run>
struct narrow_run {
  lane_run<T, Run> data[narrow_place<Run>::runs];

  KITTENS_DEVICE void load(const narrow_place<Run>& at, const T* row, bool there) {
#pragma unroll
    for (int j = 0; j < at.runs; ++j) {
      kittens::detail::run_access<T, Run>::load(data[j], row + at.column(j), there && at.inside(j));
    }
  }
  KITTENS_DEVICE void get(narrow_values& values) const {
#pragma unroll
    for (int j = 0; j < narrow_place<Run>::runs; ++j) {
      float run[Run];
      data[j].get(run);
#pragma unroll
      for (int i = 0; i < Run; ++i) values[j * Run + i] = run[i];
    }
  }
};

template <class T, int Run>
KITTENS_DEVICE void store_narrow(T* row, const narrow_place<Run>& at, const narrow_values& values) {
#pragma unroll
  for (int j = 0; j < at.runs; ++j) {
    float run[Run];
#pragma unroll
    for (int i = 0; i < Run; ++i) run[i] = values[j * Run + i];
    lane_run<T, Run> data;
    data.set(run);
    if (at.inside(j)) kittens::detail::run_access<T, Run>::store(row + at.column(j), data);
  }
}

// A [width] parameter of type T or float32; `otherwise` where null, else `offset` is added.
template <class T, int Run>
KITTENS_DEVICE void load_narrow_parameter(narrow_values& dst, const narrow_place<Run>& at,
                                          const void* data, dtype type, float otherwise,
                                          float offset) {
  const auto load_as = [&]<class P>(const P* values) {
    narrow_run<P, Run> run;
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
#pragma unroll
  for (float& value : dst) value += offset;
}

// The factors of dropout for a lane's elements of row r.
template <int Run>
KITTENS_DEVICE void narrow_factors(narrow_values& factor, const narrow_place<Run>& at,
                                   const dropout_mask& mask, int64_t r) {
#pragma unroll
  for (int j = 0; j < at.runs; ++j) {
    float run[Run];
    mask.factors(run, r * at.width + at.column(j));
#pragma unroll
    for (int i = 0; i < Run; ++i) factor[j * Run + i] = run[i];
  }
}

}  // namespace thunderkittens::inline KITTENS_TARGET
