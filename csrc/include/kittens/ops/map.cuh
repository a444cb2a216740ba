// Element-wise maths on what a warp holds in registers: vectors, and tiles with ops/tile_map.cuh.
// The destination comes first and may be a source. 16-bit elements are computed in float and
// rounded once.
#pragma once

#include <cmath>
#include <limits>

#include "kittens/arch/math.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/register_vector.cuh"

namespace kittens {

// What the named operations take. Each of them is a map(f, dst, src…), which vectors have here and
// tiles in ops/tile_map.cuh.
template <class R>
concept in_registers = register_vector<R> || register_tile<R>;

// A constant, because device code may not call numeric_limits.
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

namespace detail {

// A lane's run c of a vector, as floats.
template <register_vector V>
struct float_run {
  float value[V::run_length];
  KITTENS_DEVICE float_run(const V& v, int c) { v.data[c].get(value); }
  KITTENS_DEVICE float operator[](int i) const { return value[i]; }
};

template <int N, class F, class... Runs>
KITTENS_DEVICE void map_run(F f, float (&dst)[N], const Runs&... src) {
#pragma unroll
  for (int i = 0; i < N; ++i) dst[i] = f(src[i]...);
}

}  // namespace detail

// dst[i] = f(float(src[i])…) for vectors of one layout; the element types may differ.
template <class F, register_vector D, register_vector... S>
  requires(same_layout<D, S> && ...)
KITTENS_DEVICE void map(F f, D& dst, const S&... src) {
#pragma unroll
  for (int c = 0; c < D::chunks; ++c) {
    float out[D::run_length];
    detail::map_run(f, out, detail::float_run<S>(src, c)...);
    dst.data[c].set(out);
  }
}

// Copies, converting the element type.
template <register_vector D, register_vector S>
  requires same_layout<D, S>
KITTENS_DEVICE void copy(D& dst, const S& src) {
#pragma unroll
  for (int c = 0; c < D::chunks; ++c) convert_run(dst.data[c], src.data[c]);
}

template <in_registers R>
KITTENS_DEVICE void fill(R& dst, float value) {
  map([=] { return value; }, dst);
}
template <in_registers R>
KITTENS_DEVICE void zero(R& dst) {
  fill(dst, 0.0f);
}
template <in_registers R>
KITTENS_DEVICE void one(R& dst) {
  fill(dst, 1.0f);
}
template <in_registers R>
KITTENS_DEVICE void pos_infty(R& dst) {
  fill(dst, kInfinity);
}
template <in_registers R>
KITTENS_DEVICE void neg_infty(R& dst) {
  fill(dst, -kInfinity);
}

#define KITTENS_UNARY(name, expression)                \
  template <in_registers D, in_registers S>            \
  KITTENS_DEVICE void name(D& dst, const S& src) {     \
    map([](float x) { return expression; }, dst, src); \
  }
KITTENS_UNARY(exp, expf(x))
KITTENS_UNARY(exp2, arch::exp2_approx(x))
KITTENS_UNARY(log, logf(x))
KITTENS_UNARY(log2, arch::log2_approx(x))
KITTENS_UNARY(abs, fabsf(x))
KITTENS_UNARY(relu, fmaxf(x, 0.0f))
#undef KITTENS_UNARY

// name(dst, a, b) with b like a, or a number.
#define KITTENS_BINARY(name, expression)                         \
  template <in_registers D, in_registers A, in_registers B>      \
  KITTENS_DEVICE void name(D& dst, const A& a, const B& b) {     \
    map([](float x, float y) { return expression; }, dst, a, b); \
  }                                                              \
  template <in_registers D, in_registers A>                      \
  KITTENS_DEVICE void name(D& dst, const A& a, float y) {        \
    map([=](float x) { return expression; }, dst, a);            \
  }
// clang-format off
KITTENS_BINARY(add, x + y)
KITTENS_BINARY(sub, x - y)
KITTENS_BINARY(mul, x * y)
KITTENS_BINARY(div, x / y)
KITTENS_BINARY(max, fmaxf(x, y))
KITTENS_BINARY(min, fminf(x, y))
// clang-format on
#undef KITTENS_BINARY

// dst = a·b + c, rounded once.
template <in_registers D, in_registers A, in_registers B, in_registers C>
KITTENS_DEVICE void fma(D& dst, const A& a, const B& b, const C& c) {
  map([](float x, float y, float z) { return fmaf(x, y, z); }, dst, a, b, c);
}

namespace detail {

template <class Where, register_vector V>
KITTENS_DEVICE void fill_where(Where where, V& v, float value) {
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const int first = V::first(c, arch::lane_id());
    float values[V::run_length];
    v.data[c].get(values);
#pragma unroll
    for (int i = 0; i < V::run_length; ++i) values[i] = where(first + i) ? value : values[i];
    v.data[c].set(values);
  }
}

}  // namespace detail

// Elements from first_col on become `value`; left_fill: the elements before first_col.
template <register_vector D, register_vector S>
  requires same_layout<D, S>
KITTENS_DEVICE void right_fill(D& dst, const S& src, int first_col, float value) {
  copy(dst, src);
  if (first_col >= D::length) return;  // the same for the whole warp: most vectors are full
  detail::fill_where([=](int i) { return i >= first_col; }, dst, value);
}
template <register_vector D, register_vector S>
  requires same_layout<D, S>
KITTENS_DEVICE void left_fill(D& dst, const S& src, int first_col, float value) {
  copy(dst, src);
  if (first_col <= 0) return;
  detail::fill_where([=](int i) { return i < first_col; }, dst, value);
}

}  // namespace kittens
