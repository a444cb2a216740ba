// linear attention: the step that a token's gates are made of, mamba2's dt'.
// (linear_attention_gates.cuh)
#pragma once

#include <kittens.cuh>

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

// log(1 + eˣ); above 20, x itself, as torch has it. No branch, so that several overlap.
KITTENS_DEVICE float softplus(float x) {
  // 2 atanh(e / (2 + e)), e ≤ 1: also what is small is right to some ulp, which log₂(1 + e) is not.
  const float e = arch::exp2_approx((x > 0 ? -x : x) * kLog2e);
  const float s = e * arch::reciprocal_approx(2 + e), square = s * s;
  float sum = 1.0f / 13;
#pragma unroll
  for (int n = 11; n > 0; n -= 2) sum = fmaf(sum, square, 1.0f / n);
  const float of_small = 2 * s * sum;
  return x > 20 ? x : x > 0 ? x + of_small : of_small;
}

// dt', from dt with its bias. NaN stays NaN.
template <int N>
KITTENS_DEVICE void steps_of(float (&dt)[N], bool by_softplus, float least, float most) {
  if (by_softplus) {
#pragma unroll
    for (float& x : dt) x = softplus(x);
  }
#pragma unroll
  for (float& x : dt) x = x < least ? least : x > most ? most : x;
}
KITTENS_DEVICE float step_of(float dt, bool by_softplus, float least, float most) {
  float steps[1] = {dt};
  steps_of(steps, by_softplus, least, most);
  return steps[0];
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
