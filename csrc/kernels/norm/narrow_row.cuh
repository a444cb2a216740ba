// Rows of at most 256 columns, such as the heads that a norm of queries and keys works on: a few
// lanes hold one, and a warp holds several.
#pragma once

#include <bit>

#include "kernels/norm/any_element.cuh"
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
// row is not `there`. Of any_element, `type` says what it is.
template <class T, class Place>
struct narrow_run {
  static_assert(!is_any<T> || Place::run == 1, "elements of any type come one by one");
  using held = std::conditional_t<is_any<T>, float, T>;
  lane_run<held, Place::run> data[Place::runs];

  template <bool EvictLast = false>
  KITTENS_DEVICE void load(const Place& at, const void* row, dtype type, int64_t offset,
                           bool there) {
    const auto load_as = [&]<class E>(const E* row) {
#pragma unroll
      for (int j = 0; j < at.runs; ++j) {
        lane_run<E, Place::run> run;
        using access = kittens::detail::run_access<E, Place::run>;
        access::template load<EvictLast>(run, row + at.column(j), there && at.inside(j));
        std::memcpy(static_cast<void*>(&data[j]), &run, sizeof(run));
      }
    };
    if constexpr (!is_any<T>) {
      load_as(static_cast<const T*>(row) + offset);
    } else if (type == dtype::float32) {
      load_as(static_cast<const float*>(row) + offset);
    } else {
      load_as(static_cast<const bf16*>(row) + offset);  // or half
    }
  }
  KITTENS_DEVICE void get(typename Place::values& values, dtype type) const {
    const auto get_as = [&]<class E>(E*) {
#pragma unroll
      for (int j = 0; j < Place::runs; ++j) {
        lane_run<E, Place::run> packed;
        std::memcpy(static_cast<void*>(&packed), &data[j], sizeof(packed));
        float run[Place::run];
        packed.get(run);
#pragma unroll
        for (int i = 0; i < Place::run; ++i) values[j * Place::run + i] = run[i];
      }
    };
    if constexpr (!is_any<T>) {
      get_as(static_cast<T*>(nullptr));
    } else {
      with_type(type, get_as);
    }
  }
};

// Elements offset, offset + 1, … of an array of T, or of `type`, become the lane's share of a row.
template <class T, class Place>
KITTENS_DEVICE void store_narrow(void* row, dtype type, int64_t offset, const Place& at,
                                 const typename Place::values& values, bool there = true) {
  constexpr int kRun = Place::run;
  const auto store_as = [&]<class E>(E* row) {
#pragma unroll
    for (int j = 0; j < Place::runs; ++j) {
      float run[kRun];
#pragma unroll
      for (int i = 0; i < kRun; ++i) run[i] = values[j * kRun + i];
      lane_run<E, kRun> data;
      data.set(run);
      kittens::detail::run_access<E, kRun>::store(row + at.column(j), data, there && at.inside(j));
    }
  };
  if constexpr (!is_any<T>) {
    store_as(static_cast<T*>(row) + offset);
  } else {
    with_type(type, [&]<class E>(E*) { store_as(static_cast<E*>(row) + offset); });
  }
}

// A [width] parameter of type T or float32, or of any; `otherwise` where null, else `offset` is
// added.
template <class T, class Place>
KITTENS_DEVICE void load_narrow_parameter(typename Place::values& dst, const Place& at,
                                          const void* data, dtype type, float otherwise,
                                          float offset) {
  const auto load_as = [&]<class P>(P*) {
    narrow_run<P, Place> run;
    run.load(at, data, type, 0, true);
    run.get(dst, type);
  };
  if (data == nullptr) {
#pragma unroll
    for (float& value : dst) value = otherwise;
  } else if (!is_any<T> && type == dtype::float32) {
    load_as(static_cast<float*>(nullptr));
  } else {
    load_as(static_cast<T*>(nullptr));
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
