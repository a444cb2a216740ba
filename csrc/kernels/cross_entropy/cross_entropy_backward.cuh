// cross_entropy, backward: the gradient that the forward left, times that of the loss, row by row.
//
//   gradient [rows, width], dloss [rows] → result [rows, width], perhaps the same memory
//
// Most often dloss is 1 for all rows, and the result the gradient's own memory: then nothing is
// moved. Else memory-bound: each element is read and written once.
#pragma once

#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

template <class T>
struct cross_entropy_backward_config {
  using type = T;
  static constexpr int threads = 256;
  static constexpr int min_blocks = 5;  // 48 registers a thread
  static constexpr int vectors = 4;     // of 16 bytes, on their way to a lane
  static constexpr int slice_vectors = vectors * kWarp;
};

// What is 0 stays 0, as the gradient of ignored rows is: infinity times 0 would be NaN.
KITTENS_DEVICE float scaled(float value, float factor) {
  return value == 0.0f ? value : value * factor;
}

// Grid: (any number of blocks, slices of slice_vectors vectors). The warps of a slice's blocks take
// its rows in turn.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    cross_entropy_backward(const __grid_constant__ cross_entropy_backward_params p) {
  begin_dependent_grid();
  using T = typename Config::type;
  using vector = vector16<T>;
  const int lane = arch::lane_id(), slice = arch::block_y();
  constexpr int kWarps = Config::threads / kWarp;
  for (int64_t r = int64_t(arch::block_x()) * kWarps + arch::warp_id(); r < p.rows;
       r += int64_t(arch::grid_x()) * kWarps) {
    const float factor = arch::load_global(p.dloss + r * p.dloss_stride);
    if (factor == 1.0f && p.result == p.gradient) {
      if (p.dloss_stride == 0) return;  // so it is for every row
      continue;
    }
    const auto* from = static_cast<const T*>(p.gradient) + r * p.stride;
    auto* to = static_cast<T*>(p.result) + r * p.result_stride;
    const row_pieces<T> pieces(from, p.width);
    const bool aligned = elements_past_16_bytes(to + pieces.head) == 0;

    typename vector::run body[Config::vectors];
    const int first = slice * Config::slice_vectors + lane;
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      const int v = first + i * kWarp;
      if (v < pieces.vectors) body[i] = vector::from_global(from + pieces.column(v));
    }
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      const int v = first + i * kWarp;
      if (v >= pieces.vectors) break;
      float values[vector::kLength];
      body[i].get(values);
#pragma unroll
      for (float& value : values) value = scaled(value, factor);
      body[i].set(values);
      vector::to_global(to + pieces.column(v), body[i], aligned);
    }
    if (slice == 0 && pieces.has_loose(lane)) {
      const int column = pieces.loose_column(lane);
      const float value = convert<float>(arch::load_global(from + column));
      arch::store_global(to + column, convert<T>(scaled(value, factor)));
    }
  }
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
