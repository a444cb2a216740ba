// cross_entropy of rows far from 0: those with a largest logit of ±7.4e8 and beyond.
//
// There a rounded top (near_powers) may be off by so much that the powers of a row overflow, or are
// all 0. Here top is the largest logit itself, and a power that of the exact difference. Neighbours
// in float32 are 64 and more apart, so what is not the largest has a power of 0, or next to it.
//
// Such rows are rare. They are found when their sums are known, and summed up a second time, from
// memory: slowly, and in few registers, for the kernels have none to spare.
#pragma once

#include <type_traits>

#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

struct far_powers {
  static constexpr float least_top = std::numeric_limits<float>::lowest();
  KITTENS_DEVICE static float top_of(float largest) { return largest; }
  KITTENS_DEVICE static float power(float x, float top) {
    return arch::exp2_approx((x - top) * kLog2e);
  }
  KITTENS_DEVICE static float rescaled(float before, float top) { return power(before, top); }
  // Of 2²⁴ columns at most, the total's logarithm is less than half of the distance to a neighbour.
  KITTENS_DEVICE static float log_of(float top, float) { return top; }
};

using far_sums = row_sums<far_powers>;

// Whether a row, all of whose threads have these sums, is far. So is one that has +inf, or −inf
// alone, which gets NaN either way. A half never is.
template <class T>
KITTENS_DEVICE bool is_far(const near_sums& sums) {
  return !std::is_same_v<T, half> && fabsf(sums.top) >= kFar;
}

// A thread's part of a row in memory: the body's vectors from `first` on, `step` apart, before
// `end`, and perhaps a loose element.
template <class T>
struct far_row {
  using vector = vector16<T>;

  const T* x;
  row_pieces<T> pieces;
  int first, step, end;
  int loose;  // as loose_column takes it; −1: none

  KITTENS_DEVICE far_sums sums(bool smoothing) const {
    far_sums result;
#pragma unroll 1
    for (int v = first; v < end; v += step) {
      float logits[vector::kLength];
      vector::from_global(x + pieces.column(v)).get(logits);
      result.include(logits);
      if (smoothing) result.include_plain(logits);
    }
    if (loose >= 0) {
      result.include_one(convert<float>(arch::load_global(x + pieces.loose_column(loose))),
                         smoothing);
    }
    return result;
  }
  // In place, too: a thread writes what it alone has read since the row's threads met.
  KITTENS_DEVICE void store_gradient(T* gradient, const row_gradient<far_powers>& rule) const {
#pragma unroll 1
    for (int v = first; v < end; v += step) {
      const int column = pieces.column(v);
      float values[vector::kLength];
      vector::from_global(x + column).get(values);
      rule.apply(values);
      rule.hit_target(values, column);
      typename vector::run result;
      result.set(values);
      vector::to_global(gradient + column, result, /*aligned=*/false);
    }
    if (loose < 0) return;
    const int column = pieces.loose_column(loose);
    float value[1] = {convert<float>(arch::load_global(x + column))};
    rule.apply(value);
    rule.hit_target(value, column);
    arch::store_global(gradient + column, convert<T>(value[0]));
  }
};

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
