// layer_norm: what the host passes to the launchers. No torch, no device code.
//
//   y = (x − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var + eps),   per row
#pragma once

#include <algorithm>
#include <cstdint>

#include "kittens/host/dtype.h"

namespace thunderkittens {

using kittens::host::dtype;

inline constexpr int64_t kLayerNormMaxWidth = 65536;

// Launcher "layer_norm_forward".
struct layer_norm_forward_params {
  const void* x;       // [rows, width] of `type`, rows `x_stride` elements apart
  const void* weight;  // [width] of `weight_type`, or null: ones
  const void* bias;    // [width] of `bias_type`, or null: zeros
  void* y;             // [rows, width] of `type`, contiguous
  float* mean;         // [rows], or null: not wanted
  float* rstd;         // [rows], or null: not wanted
  int64_t rows, width, x_stride;
  float eps;
  dtype type, weight_type, bias_type;  // weight and bias: `type` or float32
};

// Launcher "layer_norm_backward".
struct layer_norm_backward_params {
  const void* dy;        // [rows, width] of `type`, rows `dy_stride` elements apart
  const void* x;         // [rows, width] of `type`, rows `x_stride` elements apart
  const void* weight;    // [width] of `weight_type`, or null: ones
  const float* mean;     // [rows]
  const float* rstd;     // [rows]
  void* dx;              // [rows, width] of `type`, contiguous, or null: not wanted
  void* dweight;         // [width] of `weight_type`, or null: not wanted
  void* dbias;           // [width] of `bias_type`, or null: not wanted
  float* partial;        // workspace [2, partial_rows, width], or null when dweight and dbias are
  int64_t partial_rows;  // layer_norm_partial_rows(rows, width, multiprocessors)
  int64_t rows, width, dy_stride, x_stride;
  dtype type, weight_type, bias_type;
};

// The shape of the backward's grid. A row is spread over `warps` warps of 16 elements a lane, and a
// block works on `groups` rows at once; above kLayerNormFusedWidth a row no longer fits one block's
// registers, and the backward reads it twice.
struct layer_norm_backward_shape {
  static constexpr int kWarpColumns = 512;
  int warps, groups;

  static constexpr layer_norm_backward_shape of(int64_t width) {
    const int warps = int((width + kWarpColumns - 1) / kWarpColumns);
    return {warps, std::max(1, 8 / warps)};
  }
  constexpr int blocks_per_multiprocessor() const { return warps * groups > 8 ? 1 : 2; }
};
inline constexpr int64_t kLayerNormFusedWidth = 16 * layer_norm_backward_shape::kWarpColumns;

// How many partial sums of dweight and dbias the backward makes before it adds them up: one a
// block. A function of the shape and the GPU model alone, so the bits are the same on every run.
inline int64_t layer_norm_partial_rows(int64_t rows, int64_t width, int multiprocessors) {
  if (width > kLayerNormFusedWidth) return std::min<int64_t>(rows, 64);
  const auto shape = layer_norm_backward_shape::of(width);
  const int64_t blocks = (rows + shape.groups - 1) / shape.groups;
  return std::min<int64_t>(blocks, int64_t(multiprocessors) * shape.blocks_per_multiprocessor());
}

}  // namespace thunderkittens
