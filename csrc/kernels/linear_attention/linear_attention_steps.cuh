// linear attention: the step that a token's gates are made of, mamba2's dt'.
// (linear_attention_gates.cuh)
#pragma once

#include <kittens.cuh>

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

// log(1 + eˣ); above 20, x itself, as torch has it.
KITTENS_DEVICE float softplus(float x) {
  if (x > 20) return x;
  // 2 atanh(e / (2 + e)), e ≤ 1: also what is small is right to some ulp, which log₂(1 + e) is not.
  const float e = arch::exp2_approx((x > 0 ? -x : x) * kLog2e);
  const float s = e * arch::reciprocal_approx(2 + e), square = s * s;
  float sum = 1.0f / 13;
#pragma unroll
  for (int n = 11; n > 0; n -= 2) sum = fmaf(sum, square, 1.0f / n);
  const float of_small = 2 * s * sum;
  return x > 0 ? x + of_small : of_small;
}

// dt', from dt with its bias. NaN stays NaN.
KITTENS_DEVICE float step_of(float dt, bool by_softplus, float least, float most) {
  const float step = by_softplus ? softplus(dt) : dt;
  return step < least ? least : step > most ? most : step;
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
