// attention: the softcap of scores, forward and backward.
#pragma once

#include <kittens.cuh>

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

// tanh x = 1 − 2 / (1 + exp 2x), within units of 1: times a small cap, within units of the cap.
// (The unit's own approximation would lose half of bf16's bits.)
KITTENS_DEVICE float short_tanh(float x) {
  return 1.0f - 2.0f * arch::reciprocal_approx(1.0f + arch::exp2_approx(x * (2 * kLog2e)));
}
// The same within 9 · 2⁻²⁴ of itself: where the other cancels, for small x, a polynomial in x²
// takes its place. With it, a step of head dimension 128 is 1538 instructions instead of 1037.
KITTENS_DEVICE float accurate_tanh(float x) {
  const float exp_2x = arch::exp2_approx(fabsf(x) * (2 * kLog2e));
  const float large = fmaf(arch::reciprocal_approx(1.0f + exp_2x), -2.0f, 1.0f);
  const float square = x * x;
  float factor = fmaf(square, -0.046321902f, 0.1324665f);
  factor = fmaf(factor, square, -0.33330485f);
  factor = fmaf(factor, square, 1.0f);
  return fabsf(x) < 0.45f ? x * factor : copysignf(large, x);
}

struct attention_softcap {
  float scale;    // softmax scale / softcap
  bool is_small;  // whether its tanh need not be right relative to itself

  // s = tanh(s · scale).
  template <class S>
  KITTENS_DEVICE void cap(S& s) const {
    const float c = scale;
    if (is_small) {
      map([=](float x) { return short_tanh(x * c); }, s, s);
    } else {
      map([=](float x) { return accurate_tanh(x * c); }, s, s);
    }
  }

  // Of tanh, where it is `tanh`; 0 where −inf hides a key.
  KITTENS_DEVICE static float slope(float tanh) { return fmaxf(fmaf(-tanh, tanh, 1.0f), 0.0f); }

  // A softcap is small whose units of 1 times it, 1e-5, are far below the rounding of the weights.
  KITTENS_INLINE static attention_softcap of(float scale, float softcap) {
    constexpr float kSmallCap = 64.0f;
    return {softcap > 0 ? scale / softcap : 0, softcap <= kSmallCap};
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
