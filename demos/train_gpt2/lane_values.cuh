// A row of a head, shared out over the lanes of a warp, and its attention to other rows: what both
// kernels of plain attention are made of. In float32, whatever the rows are of.
#pragma once

#include <cmath>

#include <kittens.cuh>

#include "kernels.h"

namespace gpt2 {

using namespace kittens;

inline constexpr int kLaneValues = kMostHeadDim / 32;  // elements of a row that a lane has

struct lane_values {
  float at[kLaneValues];
};

KITTENS_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += arch::shuffle_xor(value, mask);
  return value;
}

template <class T>
KITTENS_DEVICE void load(lane_values& values, const T* row, int64_t head_dim) {
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int d = i * 32 + arch::lane_id();
    values.at[i] = d < head_dim ? convert<float>(arch::load_global(row + d)) : 0.0f;
  }
}

template <class T>
KITTENS_DEVICE void store(T* row, const lane_values& values, int64_t head_dim) {
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int d = i * 32 + arch::lane_id();
    if (d < head_dim) arch::store_global(row + d, convert<T>(values.at[i]));
  }
}

KITTENS_DEVICE float dot(const lane_values& a, const lane_values& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) sum = arch::fma(a.at[i], b.at[i], sum);
  return warp_sum(sum);
}

// sum = a · sum + b · x
KITTENS_DEVICE void combine(lane_values& sum, float a, float b, const lane_values& x) {
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) sum.at[i] = arch::fma(b, x.at[i], a * sum.at[i]);
}

KITTENS_DEVICE float scale_of(int64_t head_dim) {
  return 1.0f / sqrtf(static_cast<float>(head_dim));
}

// o = softmax(scale · q kᵀ) v over `keys` keys, whose rows are `stride` apart. Returns the
// logarithm of the softmax' sum.
template <class T>
KITTENS_DEVICE float attend(lane_values& o, const lane_values& q, const T* keys_at,
                            const T* values_at, int64_t stride, int64_t keys, int64_t head_dim) {
  lane_values k, v;
  o = {};
  float maximum = -INFINITY, total = 0;
  for (int64_t j = 0; j < keys; ++j) {
    load(k, keys_at + j * stride, head_dim);
    load(v, values_at + j * stride, head_dim);
    const float score = dot(q, k) * scale_of(head_dim);
    const float larger = fmaxf(maximum, score);
    const float old = expf(maximum - larger), weight = expf(score - larger);
    total = total * old + weight;
    combine(o, old, weight, v);
    maximum = larger;
  }
  combine(o, 1.0f / total, 0.0f, o);
  return maximum + logf(total);
}

}  // namespace gpt2
