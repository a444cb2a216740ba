// What the named operations on tiles and vectors do with elements, as functions of floats.
#pragma once

#include <cmath>

#include "kittens/arch/math.cuh"

namespace kittens::detail {

#define KITTENS_FUNCTION(name, expression, ...)                               \
  struct name##_function {                                                    \
    KITTENS_DEVICE float operator()(__VA_ARGS__) const { return expression; } \
  };
// clang-format off
KITTENS_FUNCTION(exp, expf(x), float x)
KITTENS_FUNCTION(exp2, arch::exp2_approx(x), float x)
KITTENS_FUNCTION(log, logf(x), float x)
KITTENS_FUNCTION(log2, arch::log2_approx(x), float x)
KITTENS_FUNCTION(abs, fabsf(x), float x)
KITTENS_FUNCTION(relu, fmaxf(x, 0.0f), float x)
KITTENS_FUNCTION(add, x + y, float x, float y)
KITTENS_FUNCTION(sub, x - y, float x, float y)
KITTENS_FUNCTION(mul, x * y, float x, float y)
KITTENS_FUNCTION(div, x / y, float x, float y)
KITTENS_FUNCTION(max, fmaxf(x, y), float x, float y)
KITTENS_FUNCTION(min, fminf(x, y), float x, float y)
KITTENS_FUNCTION(fma, fmaf(x, y, z), float x, float y, float z)
KITTENS_FUNCTION(second, y, float, float y)
// clang-format on
#undef KITTENS_FUNCTION

// f of one operand and a number.
template <class F>
struct with_number {
  float y;
  KITTENS_DEVICE float operator()(float x) const { return F{}(x, y); }
};

// Without an operand: the number.
struct constant {
  float value;
  KITTENS_DEVICE float operator()() const { return value; }
};

}  // namespace kittens::detail
