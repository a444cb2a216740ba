// silu and gelu of a float: f(x) and its slope f'(x), right for every x that is not infinite.
//
// T is the element type that the results are rounded to. f(x) = x · s, with s = σ or Φ; its
// relative error, before it is rounded to T, is below
//
//   float     2^-20 + 2^-22 · ln(1 / s), silu's 2^-20
//   16 bits   2^-14 (the same, and what approximations lose: 2^-15)
//
// s may be 0 where it is below 2^-126. An infinity gives what torch's formulas give: f(∞) = ∞, and
// NaN for f(−∞) and for both slopes.
#pragma once

#include <kittens.cuh>

#include "kernels/activation/activation.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::activation_kernels::inline KITTENS_TARGET {

using namespace kittens;
using host::dtype;

struct value_and_slope {
  float value, slope;
};

// exp(−rate · x) for rate · x ≥ 0.
template <class T>
KITTENS_DEVICE float decay(float x, float rate) {
  if constexpr (std::same_as<T, float>) {
    return expf(-rate * x);
  } else {
    return arch::exp2_approx(x * (-rate * kLog2e));
  }
}

// σ(x) and 1 − σ(x) = σ(−x), of which neither loses digits.
struct logistic {
  float of, rest;
};
template <class T>
KITTENS_DEVICE logistic sigmoid(float x) {
  const float e = decay<T>(fabsf(x), 1.0f);
  const float large = arch::reciprocal_approx(1.0f + e), small = e * large;
  return x < 0.0f ? logistic{small, large} : logistic{large, small};
}

template <class T>
struct silu {
  KITTENS_DEVICE static value_and_slope at(float x) {
    const logistic s = sigmoid<T>(x);
    const float y = x * s.of;
    return {y, fmaf(y, s.rest, s.of)};
  }
};

// (1 + tanh u) / 2 = σ(2u), so that nothing cancels for negative x.
template <class T>
struct gelu_tanh {
  KITTENS_DEVICE static value_and_slope at(float x) {
    constexpr float kLinear = 1.59576912f;         // 2 √(2/π)
    constexpr float kCubic = 0.044715f * kLinear;  // of z(x), the argument of σ
    constexpr float kSaturated = 1024.0f;          // x² from where on σ is 0 or 1
    const float square = x * x;
    const logistic s = sigmoid<T>(x * fmaf(kCubic, square, kLinear));
    const float y = x * s.of;
    const float slope_of_z = fmaf(3.0f * kCubic, fminf(square, kSaturated), kLinear);
    return {y, fmaf(y, s.rest * slope_of_z, s.of)};
  }
};

// Φ(−a) · exp(a²/2) for a ≥ 0, as t · polynomial(t) with t = 1 / (1 + scale · a): least squares on
// [0, 14], weighted until the largest relative error was least. It is 2^-24.9 for float (2^-21.6
// with the roundings), 2^-15.0 for 16 bits.
template <class T>
KITTENS_DEVICE float scaled_tail(float a) {
  const auto polynomial = [a](float scale, float sum, auto... coefficients) {
    const float t = arch::reciprocal_approx(fmaf(scale, a, 1.0f));
    ((sum = fmaf(sum, t, coefficients)), ...);
    return sum * t;
  };
  if constexpr (std::same_as<T, float>) {
    return polynomial(0.35f, -0.0291454215f, 0.143969417f, -0.255709916f, 0.159169599f,
                      -0.023106942f, 0.105506882f, 0.119833127f, 0.139861837f, 0.139621407f);
  } else {
    return polynomial(0.375f, -0.0906439498f, 0.200284183f, 0.0835621059f, 0.157734603f,
                      0.149060965f);
  }
}

template <class T>
struct gelu_erf {
  KITTENS_DEVICE static value_and_slope at(float x) {
    constexpr float kInverseRoot = 0.398942280f;  // 1 / √(2π)
    const float bell = decay<T>(x * x, 0.5f);
    const float tail = bell * scaled_tail<T>(fabsf(x));
    const float normal = x < 0.0f ? tail : 1.0f - tail;
    return {x * normal, fmaf(x * kInverseRoot, bell, normal)};
  }
};

}  // namespace thunderkittens::activation_kernels::inline KITTENS_TARGET
