// hedgehog attention: the features of a warp's rows, and the sums of keys' features.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

using logits = rt_fl<16, kHalf>;  // x W of a warp's rows

// scale · softmax(Sign · x), of each row by its own scale.
template <int Sign>
KITTENS_DEVICE void softmax(logits& e, const logits& x, const logits::col_vec& scale) {
  constexpr float kScale = Sign * kLog2e;
  logits::col_vec largest, factor;
  if constexpr (Sign == 1) {
    row_max(largest, x);
  } else {
    row_min(largest, x);
  }
  mul(largest, largest, kScale);
  map_rows([](float a, float m) { return arch::exp2_approx(fmaf(a, kScale, -m)); }, e, x, largest);
  row_sum(factor, e);
  div(factor, scale, factor);
  mul_row(e, e, factor);
}
// … rounded to T.
template <int Sign, class T>
KITTENS_DEVICE void softmax_features(rt<T, 16, kHalf>& features, const logits& x,
                                     const logits::col_vec& scale) {
  logits e;
  softmax<Sign>(e, x, scale);
  copy(features, e);
}

// Σ over the tokens of φ(k), of every other block of keys: a warpgroup's. A thread has two columns;
// of rows half, and the lane with the other half adds the same to what both have.
template <class T>
class feature_sums {
 public:
  KITTENS_DEVICE feature_sums()
      : softmax(warpgroup::laneid() / kHalf),
        column(warpgroup::laneid() % kHalf / kWarp * kWarp + arch::lane_id() % 16 * 2),
        half(arch::lane_id() / 16) {}

  // Σ from a vector [features] of global memory.
  KITTENS_DEVICE void add(const float* sums) {
    x += arch::load_global(sums + softmax * kHalf + column);
    y += arch::load_global(sums + softmax * kHalf + column + 1);
  }
  // Features of a block, by softmax.
  KITTENS_DEVICE void add(const st<T, kBlock, kHalf> (&features)[2]) {
    using tile = st<T, kBlock, kHalf>;
    const int first = tile::index(half * 4, column);
    float of_x = 0, of_y = 0;
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) {
      // Four of eight rows each, whose pieces of 16 bytes lie in other banks.
      const int at = detail::moved_index<tile>(first, i / 4 * 8 + i % 4, 0);
      float a, b;
      unpack<T>(a, b, *reinterpret_cast<const uint32_t*>(&features[softmax].data[at]));
      of_x += a;
      of_y += b;
    }
    x += of_x + arch::shuffle_xor(of_x, 16);
    y += of_y + arch::shuffle_xor(of_y, 16);
  }
  KITTENS_DEVICE void publish(sv<float, kHalf> (&sums)[2]) const {
    if (half != 0) return;
    sums[softmax].data[column] = x;
    sums[softmax].data[column + 1] = y;
  }

 private:
  int softmax, column, half;
  float x = 0, y = 0;
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
