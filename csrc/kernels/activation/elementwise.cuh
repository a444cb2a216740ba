// swiglu, geglu and gelu, forward and backward: element by element, so every tensor is read or
// written once, and the kernel is as fast as memory where it has few instructions an element.
//
//   inputs [rows, width], any distance of rows → outputs [rows, width], contiguous
//
// Rows are cut into slices of one warp, which loads all of its inputs before it computes. Nothing
// is shared between warps, and a lane stores what it loaded the inputs of.
#pragma once

#include "kernels/activation/functions.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

template <class F>
struct gated_forward {
  static constexpr bool backward = false;
  static constexpr int inputs = 2, outputs = 1;  // gate, up → y
  KITTENS_DEVICE static void at(const float (&in)[2], float (&out)[1]) {
    out[0] = F::at(in[0]).value * in[1];
  }
};

template <class F>
struct gated_backward {
  static constexpr bool backward = true;
  static constexpr int inputs = 3, outputs = 2;  // dy, gate, up → dgate, dup
  KITTENS_DEVICE static void at(const float (&in)[3], float (&out)[2]) {
    const value_and_slope f = F::at(in[1]);
    out[0] = in[0] * in[2] * f.slope;
    out[1] = in[0] * f.value;
  }
};

template <class F>
struct plain_forward {
  static constexpr bool backward = false;
  static constexpr int inputs = 1, outputs = 1;  // x → y
  KITTENS_DEVICE static void at(const float (&in)[1], float (&out)[1]) {
    out[0] = F::at(in[0]).value;
  }
};

template <class F>
struct plain_backward {
  static constexpr bool backward = true;
  static constexpr int inputs = 2, outputs = 1;  // dy, x → dx
  KITTENS_DEVICE static void at(const float (&in)[2], float (&out)[1]) {
    out[0] = in[0] * F::at(in[1]).slope;
  }
};

// Function: one of the above. T: element type of all tensors. Run: elements a lane moves at once
// (16 bytes, or 1 where rows are not aligned).
template <class Function, class T, int Run>
struct elementwise_config {
  using function = Function;
  using type = T;
  // What a lane loads of each input before it computes, in accesses of 16 bytes: a multiprocessor
  // has 48 KB or more on their way.
  static constexpr int bytes = 32;
  static constexpr int elements = Run > 1 ? bytes / int(sizeof(T)) : bytes / 4;
  using vector = rv<T, kWarp * elements, ducks::rv_layout::runs<Run>>;
  static constexpr int warps = 4;
  static constexpr int threads = warps * kWarp;
  // Lets ptxas take 64 registers, or 40 where one input needs no more. Without it, it takes 32 and
  // puts the loads in between the arithmetic, one or two on their way at a time (CUDA 13.0).
  static constexpr int min_blocks = (Function::inputs == 1 ? 1536 : 1024) / threads;
};

template <int Inputs, int Outputs>
struct elementwise_operands {
  const void* in[Inputs];  // [rows, width] each, rows `stride` elements apart
  int64_t stride[Inputs];
  void* out[Outputs];  // [rows, width] each, contiguous, or null: not wanted
  int64_t rows, width;
  int64_t slices;  // of a row
};
template <class Function>
using operands_of = elementwise_operands<Function::inputs, Function::outputs>;

template <class Config>
KITTENS_DEVICE void elementwise(const operands_of<typename Config::function>& p) {
  using T = typename Config::type;
  using F = typename Config::function;
  using V = typename Config::vector;
  const int64_t slice = int64_t(arch::block_x()) * Config::warps + arch::warp_id();
  const int64_t row = p.rows == 1 ? 0 : slice / p.slices;
  if (row >= p.rows) return;
  const coord at = {.r = row, .c = slice - row * p.slices};

  V in[F::inputs], out[F::outputs];
#pragma unroll
  for (int i = 0; i < F::inputs; ++i) {
    const auto* data = static_cast<const T*>(p.in[i]);
    load(in[i], gl<const T, 1, 1>::matrix(data, p.rows, p.width, p.stride[i]), at);
  }
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    float sources[F::inputs][V::run_length], results[F::outputs][V::run_length];
#pragma unroll
    for (int i = 0; i < F::inputs; ++i) in[i].data[c].get(sources[i]);
#pragma unroll
    for (int e = 0; e < V::run_length; ++e) {
      float source[F::inputs], result[F::outputs];
#pragma unroll
      for (int i = 0; i < F::inputs; ++i) source[i] = sources[i][e];
      F::at(source, result);
#pragma unroll
      for (int o = 0; o < F::outputs; ++o) results[o][e] = result[o];
    }
#pragma unroll
    for (int o = 0; o < F::outputs; ++o) out[o].data[c].set(results[o]);
  }
#pragma unroll
  for (int o = 0; o < F::outputs; ++o) {
    if (p.out[o] == nullptr) continue;
    store(gl<T, 1, 1>::matrix(static_cast<T*>(p.out[o]), p.rows, p.width, p.width), out[o], at);
  }
}

// Grid of both: blocks of Config::warps slices, rows · slices of them in all.
template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::min_blocks)
    activation_forward(const __grid_constant__ operands_of<typename Config::function> p) {
  begin_overlapped();
  elementwise<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::min_blocks)
    activation_backward(const __grid_constant__ operands_of<typename Config::function> p) {
  begin_overlapped();
  elementwise<Config>(p);
}

}  // namespace thunderkittens::inline KITTENS_TARGET
