// based_attention: the sums of keys' features, by which rows have their denominator.
// (based_attention.cuh)
//
//   Σ w(j) A(i, j) = Σ w(j) + scale · x(i) · Σ w(j) y(j) + scale²/2 · x(i)ᵀ (Σ w(j) y(j) y(j)ᵀ)
//   x(i)
//
// over tokens j, of keys y and rows x. Forward, all w are 1: the sum of weights. In reverse, w is
// the gradient of j's denominator. Each warp has the sums in its registers, in float32, by products
// of what y holds; those of w 1 are exact.
#pragma once

#include "kernels/based_attention/based_attention_tile.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class T>
class key_sums {
 public:
  using of_tokens = rt_fl<16, kChunk>::row_vec;

  KITTENS_DEVICE void clear() {
    zero(products);
    for (float& x : elements) x = 0;
    total = 0;
  }

  // A chunk of keys, of which `tokens` exist; the others are zeros.
  template <class Tile>
  KITTENS_DEVICE void add(const Tile& y, int tokens) {
    for_each_fragment(y, [&](const columns& keys, int) { add(keys, keys); });
    total += static_cast<float>(tokens);
  }
  // With weights, 0 of what does not exist.
  template <class Tile>
  KITTENS_DEVICE void add(const Tile& y, const of_tokens& weights) {
    float sum = 0;
    for_each_fragment(y, [&](const columns& keys, int i) {
      columns weighted;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float a, b, w[2];
        keys.get(a, b, 0, 0, j);
        weights.data[2 * i + j / 2].get(w);
        weighted.set(0, 0, j, a * w[0], b * w[1]);
        if (j % 2 == 0) sum += w[0] + w[1];
      }
      add(weighted, keys);
    });
    sum += arch::shuffle_xor(sum, 1);
    total += sum + arch::shuffle_xor(sum, 2);
  }

  // Σ w(j) A(i, j) of this lane's rows: its part, of which four lanes' sum is the whole.
  KITTENS_DEVICE void weigh(float (&sums)[2], const rt<T, 16, kKeys>& x, float scale) const {
    rt_fl<16, kKeys> times;
    multiply(times, x, 0.5f * scale * scale);
    sums[0] = sums[1] = 0.25f * total;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float a, b, u, v;
      x.get(a, b, 0, 0, i);
      times.get(u, v, 0, 0, i);
      const float m = elements[i / 2 * 2], n = elements[i / 2 * 2 + 1];
      sums[i % 2] = fmaf(a, fmaf(scale, m, u), fmaf(b, fmaf(scale, n, v), sums[i % 2]));
    }
  }
  // Its gradient in x.
  KITTENS_DEVICE void differentiate(rt_fl<16, kKeys>& gradient, const rt<T, 16, kKeys>& x,
                                    float scale) const {
    multiply(gradient, x, scale * scale);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      gradient.data[0][i] = fmaf(scale, elements[i / 4 * 2 + i % 2], gradient.data[0][i]);
    }
  }

  // Adds sums of the op's features [F]: each is of the root of its weight.
  KITTENS_DEVICE void add(const float* features, int width, float scale) {
    const auto inverse = feature_roots::of(scale).inverse();
    for_each(width, [&](float& sum, const feature_column& column, bool) {
      sum += arch::load_global(features + column.row(width)) * inverse.of_column(column);
    });
    total += arch::load_global(features);
  }
  KITTENS_DEVICE void store(float* features, int width, float scale) {  // by one warp
    const int lane = arch::lane_id();
    const auto root = feature_roots::of(scale);
    for_each(width, [&](float& sum, const feature_column& column, bool once) {
      if (once) arch::store_global(features + column.row(width), sum * root.of_column(column));
    });
    if (lane == 0) arch::store_global(features, total);
  }

 private:
  using columns = rt<T, 16, kKeys, ducks::rt_layout::col>;  // of 16 tokens
  rt_fl<kKeys, kKeys> products;                             // Σ w y yᵀ
  float elements[4];  // Σ w y, of this lane's columns, as in a row of a tile
  float total;        // Σ w

  template <class Tile, class F>
  KITTENS_DEVICE static void for_each_fragment(const Tile& y, F f) {
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      columns keys;
      load_fragment<true>(keys.data[0], y, i * 16, 0);
      f(keys, i);
    }
  }
  KITTENS_DEVICE void add(const columns& weighted, const columns& keys) {
    rt<T, 16, 16> ones;
    one(ones);
    mma_AtB(products, weighted, keys, products);
    rt_fl<16, kKeys> in_rows;  // of which the first eight are enough
#pragma unroll
    for (int i = 0; i < 4; ++i) in_rows.set(0, 0, i, elements[i / 2 * 2], elements[i / 2 * 2 + 1]);
    mma_AB(in_rows, ones, weighted, in_rows);
    in_rows.get(elements[0], elements[1], 0, 0, 0);
    in_rows.get(elements[2], elements[3], 0, 0, 2);
  }

  // result = factor · x · products. As an operand they are their mean, in which float16 does not
  // overflow, and in two parts.
  KITTENS_DEVICE void multiply(rt_fl<16, kKeys>& result, const rt<T, 16, kKeys>& x,
                               float factor) const {
    const float of_mean = fmaxf(fabsf(total), 1.0f);
    columns high, low;  // the products are symmetric: transposed, they are the same
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float a, b, rounded_a, rounded_b;
      products.get(a, b, 0, 0, i);
      a /= of_mean;
      b /= of_mean;
      high.set(0, 0, i, a, b);
      high.get(rounded_a, rounded_b, 0, 0, i);
      low.set(0, 0, i, a - rounded_a, b - rounded_b);
    }
    mm_AB(result, x, high);
    mma_AB(result, x, low, result);
    mul(result, result, factor * of_mean);
  }

  // f(this lane's element, what it is a sum of, whether it speaks for others that are the same) for
  // each that exists. (Of products with weights, those on both sides of the diagonal may differ in
  // a rounding.)
  template <class F>
  KITTENS_DEVICE void for_each(int width, F f) {
    const int lane = arch::lane_id();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = rt_fl<16, 16>::across(0, i / 2, lane);
      const int column = rt_fl<16, 16>::along(0, i / 2, lane) + i % 2;
      if (column >= width) continue;
      if (i / 2 % 2 == 0) f(elements[i / 4 * 2 + i % 2], feature_column{-1, column}, row == 0);
      if (row >= width) continue;
      const bool above = row <= column;
      f(products.data[0][i], feature_column{above ? row : column, above ? column : row}, above);
    }
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
