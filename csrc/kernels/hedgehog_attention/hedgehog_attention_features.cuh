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

// Σ over the tokens of φ(k), of every other block of keys. The first warpgroup's threads have two
// columns each, half of them those of even blocks.
template <class T>
class feature_sums {
 public:
  KITTENS_DEVICE explicit feature_sums(int thread)
      : block(thread / kHalf),
        softmax(thread % kHalf / (kHalf / 2)),
        column(2 * (thread % (kHalf / 2))) {}

  // Σ from a vector [features] of global memory, or null; of even blocks alone.
  KITTENS_DEVICE void add(const float* sums) {
    if (sums == nullptr || block != 0) return;
    x += arch::load_global(sums + softmax * kHalf + column);
    y += arch::load_global(sums + softmax * kHalf + column + 1);
  }
  KITTENS_DEVICE void add(const st<T, kBlock, kHalf> (&features)[kConsumers][2]) {
    const auto& tile = features[block][softmax];
#pragma unroll 16
    for (int row = 0; row < kBlock; ++row) {
      float a, b;
      unpack<T>(a, b, *reinterpret_cast<const uint32_t*>(&tile(row, column)));
      x += a;
      y += b;
    }
  }
  KITTENS_DEVICE void publish(sv<float, kHalf> (&sums)[2][2]) const {
    sums[block][softmax].data[column] = x;
    sums[block][softmax].data[column + 1] = y;
  }

 private:
  int block, softmax, column;
  float x = 0, y = 0;
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
