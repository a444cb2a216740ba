// based_attention: what the denominator of later tokens is made of. (based_attention.cuh)
//
//   Σ A(i, j) = n + scale · q(i) · Σ k(j) + scale²/2 · q(i)ᵀ (Σ k(j) k(j)ᵀ) q(i)
//
// over n tokens j: the sums of the features of k are those of its elements and of their products.
// Each warp has them all in its registers, in float32, by exact products of what k holds.
#pragma once

#include "kernels/based_attention/based_attention_tile.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class T>
class key_sums {
 public:
  KITTENS_DEVICE void clear() {
    zero(products);
    zero(elements);
    count = 0;
  }

  // A chunk of k, of which `tokens` exist; the others are zeros.
  template <class Tile>
  KITTENS_DEVICE void add(const Tile& k, int tokens) {
    rt<T, 16, 16> ones;
    one(ones);
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      rt<T, 16, kKeys, ducks::rt_layout::col> keys;
      load_fragment<true>(keys.data[0], k, i * 16, 0);
      mma_AtB(products, keys, keys, products);
      mma_AB(elements, ones, keys, elements);
    }
    count += static_cast<float>(tokens);
  }

  // Of this lane's rows of q, its part of the sum of weights: the sum over the four lanes of a row
  // is the whole.
  KITTENS_DEVICE void weigh(float (&sums)[2], const rt<T, 16, kKeys>& q, float scale) const {
    // Their mean is an operand, in two parts, in which float16 does not overflow.
    const float of_mean = fmaxf(count, 1.0f);
    rt<T, 16, kKeys, ducks::rt_layout::col> high, low;  // symmetric: transposed, it is the same
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x, y, rounded_x, rounded_y;
      products.get(x, y, 0, 0, i);
      x /= of_mean;
      y /= of_mean;
      high.set(0, 0, i, x, y);
      high.get(rounded_x, rounded_y, 0, 0, i);
      low.set(0, 0, i, x - rounded_x, y - rounded_y);
    }
    rt_fl<16, kKeys> times;  // q times the mean of products
    mm_AB(times, q, high);
    mma_AB(times, q, low, times);
    const float of_products = 0.5f * scale * scale * of_mean;
    sums[0] = sums[1] = 0.25f * count;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x, y, a, b, u, w;
      q.get(x, y, 0, 0, i);
      elements.get(a, b, 0, 0, i);
      times.get(u, w, 0, 0, i);
      float& sum = sums[i % 2];
      sum = fmaf(x, fmaf(of_products, u, scale * a), sum);
      sum = fmaf(y, fmaf(of_products, w, scale * b), sum);
    }
  }

  // Adds sums of the op's features [F]: each is of the root of its weight.
  KITTENS_DEVICE void add(const float* features, int keys, float scale) {
    const float root = sqrtf(scale);
    for_each(keys, [&](float& x, feature_column column) {
      const float weight = column.e < 0 ? root : column.e == column.f ? scale * kRootHalf : scale;
      x += arch::load_global(features + column.row(keys)) / weight;
    });
    count += arch::load_global(features);
  }
  // The same of all lanes; by one warp.
  KITTENS_DEVICE void store(float* features, int keys, float scale) {
    const float root = sqrtf(scale);
    for_each(keys, [&](float& x, feature_column column) {
      const float weight = column.e < 0 ? root : column.e == column.f ? scale * kRootHalf : scale;
      arch::store_global(features + column.row(keys), x * weight);
    });
    if (arch::lane_id() == 0) arch::store_global(features, count);
  }

 private:
  static constexpr float kRootHalf = 0.70710678f;
  rt_fl<kKeys, kKeys> products;  // Σ k kᵀ
  rt_fl<16, kKeys> elements;     // Σ k, in each row
  float count;                   // n

  // f(this lane's element, what it is a sum of) for each that exists.
  template <class F>
  KITTENS_DEVICE void for_each(int keys, F f) {
    const int lane = arch::lane_id();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = rt_fl<16, 16>::across(0, i / 2, lane);
      const int column = rt_fl<16, 16>::along(0, i / 2, lane) + i % 2;
      if (column >= keys) continue;
      f(elements.data[0][i], feature_column{-1, column});
      if (row >= keys) continue;
      f(products.data[0][i],
        feature_column{row < column ? row : column, row < column ? column : row});
    }
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
