// Element-wise maths on tiles and vectors, by one warp: here on vectors in registers; tiles in
// registers are in ops/register/tile_map.cuh, and what is in shared memory in
// ops/shared/elementwise.cuh. The destination comes first and may be a source. 16-bit elements are
// computed in float and rounded once.
#pragma once

#include <limits>

#include "kittens/arch/thread.cuh"
#include "kittens/ops/register/functions.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/register_vector.cuh"
#include "kittens/types/shared_tile.cuh"
#include "kittens/types/shared_vector.cuh"

namespace kittens {

// What the named operations take. Each of them is a map(f, dst, src…) of its operands' kind.
template <class R>
concept in_registers = register_vector<R> || register_tile<R>;
template <class S>
concept in_shared = shared_vector<S> || shared_tile<S>;
template <class X>
concept operand = in_registers<X> || in_shared<X>;

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

template <operand D>
KITTENS_DEVICE void fill(D& dst, float value) {
  map(detail::constant{value}, dst);
}
template <operand D>
KITTENS_DEVICE void zero(D& dst) {
  fill(dst, 0.0f);
}
template <operand D>
KITTENS_DEVICE void one(D& dst) {
  fill(dst, 1.0f);
}
template <operand D>
KITTENS_DEVICE void pos_infty(D& dst) {
  fill(dst, kInfinity);
}
template <operand D>
KITTENS_DEVICE void neg_infty(D& dst) {
  fill(dst, -kInfinity);
}

#define KITTENS_UNARY(name)                        \
  template <operand D, operand S>                  \
  KITTENS_DEVICE void name(D& dst, const S& src) { \
    map(detail::name##_function{}, dst, src);      \
  }
KITTENS_UNARY(exp)
KITTENS_UNARY(exp2)
KITTENS_UNARY(log)
KITTENS_UNARY(log2)
KITTENS_UNARY(abs)
KITTENS_UNARY(relu)
#undef KITTENS_UNARY

// name(dst, a, b) with b like a, or a number.
#define KITTENS_BINARY(name)                                      \
  template <operand D, operand A, operand B>                      \
  KITTENS_DEVICE void name(D& dst, const A& a, const B& b) {      \
    map(detail::name##_function{}, dst, a, b);                    \
  }                                                               \
  template <operand D, operand A>                                 \
  KITTENS_DEVICE void name(D& dst, const A& a, float y) {         \
    map(detail::with_number<detail::name##_function>{y}, dst, a); \
  }
KITTENS_BINARY(add)
KITTENS_BINARY(sub)
KITTENS_BINARY(mul)
KITTENS_BINARY(div)
KITTENS_BINARY(max)
KITTENS_BINARY(min)
#undef KITTENS_BINARY

// dst = a·b + c, rounded once.
template <operand D, operand A, operand B, operand C>
KITTENS_DEVICE void fma(D& dst, const A& a, const B& b, const C& c) {
  map(detail::fma_function{}, dst, a, b, c);
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
