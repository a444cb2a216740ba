// swiglu, geglu and gelu, forward and backward: element by element, so every tensor is read or
// written once, and the kernel is as fast as memory where it has few instructions an element.
//
//   inputs [rows, width], any distance of rows → outputs [rows, width], contiguous
//
// Rows, or where they are not aligned groups of them, are cut into slices of one warp, which loads
// all of its inputs before it computes. Nothing is shared between warps, and a lane stores what it
// loaded the inputs of.
#pragma once

#include "kernels/activation/functions.cuh"

namespace thunderkittens::activation_kernels::inline KITTENS_TARGET {

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
  // What ptxas may take: 64, or 40 where one input needs no more. Not told, it takes 32 and puts
  // the loads in between the arithmetic, one or two on their way at a time (CUDA 13.0).
  static constexpr int registers = Function::inputs == 1 ? 40 : 64;
  static constexpr int min_blocks = 65536 / registers / threads;
  // Rows that are cut together: one, or where they are not aligned as many as make a group start at
  // a multiple of 128 bytes of the outputs. A group's last slices are then the ends of rows, of so
  // many each: what they read lies in the L2 by then, and is not fetched from memory by pieces.
  static constexpr int group_rows = Aligned ? 1 : 64, end_rows = 4;
  static constexpr int end_slices = Aligned ? 0 : group_rows / end_rows;
};

template <int Inputs, int Outputs>
struct elementwise_operands {
  const void* in[Inputs];  // [rows, width] each, rows `stride` elements apart
  int64_t stride[Inputs];
  void* out[Outputs];  // [rows, width] each, contiguous, at 16 bytes' multiples; null: not wanted
  int64_t rows, width;
  int64_t slices;          // of a group of rows
  int64_t rows_per_slice;  // · 2³², rounded down
};
template <class Function>
using operands_of = elementwise_operands<Function::inputs, Function::outputs>;

// out = the function of `in`, element by element.
template <class F, class V>
KITTENS_DEVICE void evaluate(V (&out)[F::outputs], const V (&in)[F::inputs]) {
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
}

// Slice at.c of row at.r, where rows are aligned. (`width` is a reference: a value lets ptxas keep
// the loads' predicates for the stores, in registers.)
template <class Config>
KITTENS_DEVICE void transform_slice(const operands_of<typename Config::function>& p,
                                    const int64_t& width, coord at) {
  using T = typename Config::type;
  using F = typename Config::function;
  typename Config::vector in[F::inputs], out[F::outputs];
#pragma unroll
  for (int i = 0; i < F::inputs; ++i) {
    const T* data = static_cast<const T*>(p.in[i]);
    load_evict_last(in[i], gl<const T, 1, 1>::matrix(data, p.rows, width, p.stride[i]), at);
  }
  evaluate<F>(out, in);
#pragma unroll
  for (int o = 0; o < F::outputs; ++o) {
    if (p.out[o] == nullptr) continue;
    T* data = static_cast<T*>(p.out[o]);
    store(gl<T, 1, 1>::matrix(data, p.rows, width, width), out[o], at);
  }
}

// Rows that are cut together: Config::group_rows, or those that are left.
struct row_group {
  int64_t first;
  uint32_t rows;
};

// Where a lane's run starts in a group: at its element `index`, as it stands in the outputs, in row
// `row`. Not `inside`: the lane has no run.
struct place {
  int64_t index;
  uint32_t row;
  bool inside;
};

// The runs at `places`, one for each of the lane's in V.
template <class Config, class V>
KITTENS_DEVICE void transform_at(const operands_of<typename Config::function>& p, row_group group,
                                 const place (&places)[V::chunks]) {
  using T = typename Config::type;
  using F = typename Config::function;
  V in[F::inputs], out[F::outputs];
  bool inside[V::chunks];
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) inside[c] = places[c].inside;
#pragma unroll
  for (int i = 0; i < F::inputs; ++i) {
    const T* data = static_cast<const T*>(p.in[i]) + group.first * p.stride[i];
    const T* from[V::chunks];
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) {
      from[c] = data + places[c].index + places[c].row * (p.stride[i] - p.width);
    }
    gather(in[i], from, inside);
  }
  evaluate<F>(out, in);
#pragma unroll
  for (int o = 0; o < F::outputs; ++o) {
    if (p.out[o] == nullptr) continue;
    T* data = static_cast<T*>(p.out[o]) + group.first * p.width;
    T* to[V::chunks];
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) to[c] = data + places[c].index;
    scatter(to, out[o], inside);
  }
}

// A group is cut as what it is in the outputs, one long row: runs of 16 bytes are aligned where
// they are written, and gathered where they are read. Those that do not lie in one row together
// with what gather reads beside them are left out: they are the ends of rows.
template <class Config>
KITTENS_DEVICE void transform_runs(const operands_of<typename Config::function>& p, row_group group,
                                   int64_t slice) {
  using V = typename Config::vector;
  constexpr int kMargin = gather_margin<typename Config::type, Config::run>;
  // Of the slice's first element; or the row before, since rows_per_slice is rounded down, and a
  // column behind its end.
  const auto first_row = static_cast<uint32_t>(slice * p.rows_per_slice >> 32);
  const int64_t first_column = slice * V::length - first_row * p.width;
  place places[V::chunks];
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const int offset = V::first(c, arch::lane_id());
    uint32_t row = first_row;
    int64_t column = first_column + offset;
    while (column >= p.width) {
      column -= p.width;
      ++row;
    }
    const bool in_row = column >= kMargin && column <= p.width - Config::run - kMargin;
    places[c] = {slice * V::length + offset, row, in_row && row < group.rows};
  }
  transform_at<Config, V>(p, group, places);
}

// The ends of some of its rows, by one lane an element: of each, fewer than two runs and two
// margins.
template <class Config>
KITTENS_DEVICE void transform_ends(const operands_of<typename Config::function>& p, row_group group,
                                   uint32_t slice) {
  using V = rv<typename Config::type, kWarp * Config::end_rows>;
  constexpr int kRun = Config::run, kMargin = gather_margin<typename Config::type, kRun>;
  place places[V::chunks];
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const uint32_t row = slice * Config::end_rows + c;
    const int64_t start = row * p.width;
    const int head = kMargin + static_cast<int>(-(start + kMargin) & (kRun - 1));
    const int64_t room = p.width - head - kMargin, in_runs = room > 0 ? room & -kRun : 0;
    const int64_t column = arch::lane_id() + (arch::lane_id() < head ? 0 : in_runs);
    places[c] = {start + column, row, column < p.width && row < group.rows};
  }
  transform_at<Config, V>(p, group, places);
}

template <class Config>
KITTENS_DEVICE void elementwise(const operands_of<typename Config::function>& p) {
  const int64_t slice = int64_t(arch::block_x()) * Config::warps + arch::warp_id();
  const int64_t number = p.rows == 1 ? 0 : slice / p.slices;
  const int64_t first_row = number * Config::group_rows, left = p.rows - first_row;
  if (left <= 0) return;
  const int64_t of_group = slice - number * p.slices;
  if constexpr (Config::aligned) {
    transform_slice<Config>(p, p.width, {.r = first_row, .c = of_group});
  } else {
    const int64_t rows = left < Config::group_rows ? left : Config::group_rows;
    const row_group group = {first_row, static_cast<uint32_t>(rows)};
    const int64_t behind_runs = of_group - (p.slices - Config::end_slices);
    if (behind_runs < 0) {
      transform_runs<Config>(p, group, of_group);
    } else {
      transform_ends<Config>(p, group, static_cast<uint32_t>(behind_runs));
    }
  }
}

// Grid of both: blocks of Config::warps slices, groups · slices of them in all.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    activation_forward(const __grid_constant__ operands_of<typename Config::function> p) {
  begin_dependent_grid();
  elementwise<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    activation_backward(const __grid_constant__ operands_of<typename Config::function> p) {
  begin_dependent_grid();
  elementwise<Config>(p);
}

}  // namespace thunderkittens::activation_kernels::inline KITTENS_TARGET
