// Reductions of a vector to one number, the same in every lane of the warp. (Of shared vectors,
// reduce and dot are in ops/shared/elementwise.cuh.)
#pragma once

#include "kittens/arch/shuffle.cuh"
#include "kittens/ops/register/vector_map.cuh"
#include "kittens/types/register_vector.cuh"

namespace kittens {

// op over the lanes that differ in `LaneBits` of their numbers alone (a whole warp: all five), by a
// butterfly: all of them get the same bits, in a fixed order.
template <int LaneBits = kWarp - 1, class F>
KITTENS_DEVICE float reduce_lanes(F op, float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    if (LaneBits & step) value = op(value, arch::shuffle_xor(value, step));
  }
  return value;
}

// op over the vector's elements, in float: those of a lane in order, then over the lanes that hold
// others.
template <class F, register_vector V>
KITTENS_DEVICE float reduce(F op, const V& src) {
  float value = 0.0f;
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const detail::float_run<V> run(src, c);
#pragma unroll
    for (int i = 0; i < V::run_length; ++i) value = c + i == 0 ? run[0] : op(value, run[i]);
  }
  return reduce_lanes<V::lane_bits>(op, value);
}

// dst = Σ a[i] · b[i].
template <register_vector A, register_vector B>
  requires same_layout<A, B>
KITTENS_DEVICE void dot(float& dst, const A& a, const B& b) {
  float value = 0.0f;
#pragma unroll
  for (int c = 0; c < A::chunks; ++c) {
    const detail::float_run<A> x(a, c);
    const detail::float_run<B> y(b, c);
#pragma unroll
    for (int i = 0; i < A::run_length; ++i) value = fmaf(x[i], y[i], value);
  }
  dst = reduce_lanes<A::lane_bits>([](float x, float y) { return x + y; }, value);
}

// name(dst, src): dst = op over src; name(dst, src, accum): that, and accum.
#define KITTENS_REDUCE(name, function)                              \
  template <class V>                                                \
    requires(register_vector<V> || shared_vector<V>)                \
  KITTENS_DEVICE void name(float& dst, const V& src) {              \
    dst = reduce(detail::function##_function{}, src);               \
  }                                                                 \
  template <class V>                                                \
    requires(register_vector<V> || shared_vector<V>)                \
  KITTENS_DEVICE void name(float& dst, const V& src, float accum) { \
    constexpr detail::function##_function kOp;                      \
    dst = kOp(reduce(kOp, src), accum);                             \
  }
KITTENS_REDUCE(sum, add)
KITTENS_REDUCE(prod, mul)
KITTENS_REDUCE(max, max)
KITTENS_REDUCE(min, min)
#undef KITTENS_REDUCE

}  // namespace kittens
