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

// Function: one of the above. T: element type of all tensors. Aligned: whether all rows start at
// multiples of 16 bytes, and have a multiple of 16.
template <class Function, class T, bool Aligned>
struct elementwise_config {
  using function = Function;
  using type = T;
  static constexpr bool aligned = Aligned;
  static constexpr int run = 16 / int(sizeof(T));  // elements of an access
  // What a lane loads of each input before it computes, in accesses of 16 bytes: a multiprocessor
  // has 48 KB or more on their way.
  static constexpr int bytes = 32;
  static constexpr int elements = bytes / int(sizeof(T));
  using vector = rv<T, kWarp * elements, ducks::rv_layout::runs<run>>;
  static constexpr int warps = 4;
  static constexpr int threads = warps * kWarp;
  // What ptxas may take: 64, or 40 where one input needs no more, or 80 where three inputs have
  // twice as many on their way, to be shifted. Not told, it takes 32 and puts the loads in between
  // the arithmetic, one or two on their way at a time (CUDA 13.0).
  static constexpr bool most = Function::inputs == 3 && !Aligned;
  static constexpr int registers = most ? 80 : Function::inputs == 1 ? 40 : 64;
  static constexpr int min_blocks = 65536 / registers / threads;
};

template <int Inputs, int Outputs>
struct elementwise_operands {
  const void* in[Inputs];  // [rows, width] each, rows `stride` elements apart
  int64_t stride[Inputs];
  void* out[Outputs];  // [rows, width] each, contiguous, at 16 bytes' multiples; null: not wanted
  int64_t rows, width;
  int64_t slices;  // of a row; where rows are not aligned, slice 0 is single elements
};
template <class Function>
using operands_of = elementwise_operands<Function::inputs, Function::outputs>;

// Vector number at.c of those `columns` elements of row at.r that start at `first`. (`columns` is a
// reference: a value lets ptxas keep the loads' predicates for the stores, in registers.)
template <class Config, class V>
KITTENS_DEVICE void transform(const operands_of<typename Config::function>& p, int64_t first,
                              const int64_t& columns, coord at) {
  using T = typename Config::type;
  using F = typename Config::function;
  V in[F::inputs], out[F::outputs];
#pragma unroll
  for (int i = 0; i < F::inputs; ++i) {
    const T* data = static_cast<const T*>(p.in[i]) + first;
    const auto tensor = gl<const T, 1, 1>::matrix(data, p.rows, columns, p.stride[i]);
    if constexpr (Config::aligned || V::run_length == 1) {
      load(in[i], tensor, at);
    } else {
      load_unaligned(in[i], tensor, at);
    }
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
    T* data = static_cast<T*>(p.out[o]) + first;
    store(gl<T, 1, 1>::matrix(data, p.rows, columns, p.width), out[o], at);
  }
}

// A row that starts anywhere: single elements, runs of 16 bytes that are aligned where they are
// written, and single elements. The inputs' runs are shifted out of aligned ones (load_unaligned),
// which lie in the row because at either end of it at least one run's elements, and fewer than
// those of two, are moved singly. That is less than a warp has lanes: it is slice 0.
template <class Config>
KITTENS_DEVICE void transform_unaligned(const operands_of<typename Config::function>& p, coord at) {
  constexpr int kRun = Config::run;
  const int64_t head = kRun + (-(at.r * p.width) & (kRun - 1));
  const int64_t room = p.width - head - kRun;
  const int64_t in_runs = room > 0 ? room & -kRun : 0;
  if (at.c > 0) {
    transform<Config, typename Config::vector>(p, head, in_runs, {.r = at.r, .c = at.c - 1});
  } else {
    const int64_t first = arch::lane_id() < head ? 0 : in_runs;
    transform<Config, rv<typename Config::type, kWarp>>(p, first, p.width - first, {.r = at.r});
  }
}

template <class Config>
KITTENS_DEVICE void elementwise(const operands_of<typename Config::function>& p) {
  const int64_t slice = int64_t(arch::block_x()) * Config::warps + arch::warp_id();
  const int64_t row = p.rows == 1 ? 0 : slice / p.slices;
  if (row >= p.rows) return;
  const coord at = {.r = row, .c = slice - row * p.slices};
  if constexpr (Config::aligned) {
    transform<Config, typename Config::vector>(p, 0, p.width, at);
  } else {
    transform_unaligned<Config>(p, at);
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
