// The norms: what the host passes to the launchers. No torch, no device code.
//
//   y = (s − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var + eps)     layer_norm
//   y = s · rstd · (weight + weight_offset),  rstd = 1 / sqrt(mean(s²) + eps)  rms_norm
//
// per row s of x, or (add_layer_norm, add_rms_norm) of  s = dropout(x) + residual, which is an
// output as well.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kittens/host/dtype.h"

namespace thunderkittens {

using kittens::host::dtype;

inline constexpr int64_t kNormMaxWidth = 65536;
inline constexpr int64_t kNormNarrowWidth = 256;  // up to here, a few lanes hold a row

// The members of the family, as the kernels' configurations name them.
struct layer_norm_kind {
  static constexpr bool centred = true, adds = false;
};
struct rms_norm_kind {
  static constexpr bool centred = false, adds = false;
};
struct add_layer_norm_kind {
  static constexpr bool centred = true, adds = true;
};
struct add_rms_norm_kind {
  static constexpr bool centred = false, adds = true;
};

// Where the rows of a matrix start: row r at (r / count) · outer + (r % count) · inner elements.
// With a count of 1 they are `outer` apart. More is for narrow rows, such as the heads of a slice
// of a fused qkv tensor, and for less than 2³¹ rows.
struct row_strides {
  int64_t outer, inner = 0;
  uint32_t count = 1, magic = 0, shift = 0;  // r / count = (r · magic) >> 32 >> shift

  static constexpr row_strides of(int64_t outer, int64_t inner, int64_t count) {
    if (count == 1) return {outer};
    const int bits = std::bit_width(uint64_t(count) - 1);  // 2^bits ≥ count
    const uint64_t power = uint64_t(1) << (31 + bits);
    return {outer, inner, uint32_t(count), uint32_t((power + uint64_t(count) - 1) / count),
            uint32_t(bits - 1)};
  }
};

// Element i is kept where the generator's number i of `seed` is at least `drop_below`, and then
// multiplied by `scale`.
struct dropout_params {
  const int64_t* seed = nullptr;  // [1], or null: nothing is dropped
  uint32_t drop_below = 0;
  float scale = 1.0f;

  static dropout_params of(double p, const int64_t* seed) {
    const double below = std::min(std::round(p * 4294967296.0), 4294967295.0);
    return {seed, static_cast<uint32_t>(below), static_cast<float>(1.0 / (1.0 - p))};
  }
};

// Launchers "layer_norm_forward", "rms_norm_forward", "add_layer_norm_forward",
// "add_rms_norm_forward". What a member does not have is null or zero.
struct norm_forward_params {
  const void* x;         // [rows, width] of `type`
  const void* residual;  // [rows, width] of `residual_type`, rows `residual_stride` elements apart
  const void* weight;    // [width] of `weight_type`, or null: ones
  const void* bias;      // [width] of `bias_type`, or null: zeros
  void* y;               // [rows, width] of `type`, contiguous
  void* sum;             // [rows, width] of `residual_type`, contiguous: dropout(x) + residual
  float* mean;           // [rows], or null: not wanted
  float* rstd;           // [rows], or null: not wanted
  int64_t rows, width;
  row_strides x_rows;
  int64_t residual_stride;
  float eps, weight_offset;
  bool round_first;  // round the normalised value to `type` before it is multiplied by the weight
  dropout_params dropout;
  dtype type, residual_type, weight_type, bias_type;  // the last three: `type` or float32
};

// Launchers "layer_norm_backward", … : the gradients of x, or of dropout(x) + residual.
struct norm_backward_params {
  const void* dy;    // [rows, width] of `type`
  const void* x;     // [rows, width] of `residual_type` where a residual was added, else of `type`
  const void* dsum;  // [rows, width] of `residual_type`, rows `dsum_stride` elements apart, or
                     // null: the gradient that arrives at the sum itself
  const void* weight;    // [width] of `weight_type`, or null: ones
  const float* mean;     // [rows]; null without a mean
  const float* rstd;     // [rows]
  void* dx;              // [rows, width] of `type`, contiguous, or null: not wanted
  void* dresidual;       // [rows, width] of `residual_type`, contiguous, or null: not wanted
  void* dweight;         // [width] of `weight_type`, or null: not wanted
  void* dbias;           // [width] of `bias_type`, or null: not wanted
  float* partial;        // workspace [2, partial_rows, width], or null when dweight and dbias are,
                         // or partial_rows is 0
  int64_t partial_rows;  // norm_partial_rows(rows, width, multiprocessors), or 0: they are few
  int64_t rows, width;
  row_strides dy_rows, x_rows;
  int64_t dsum_stride;
  float weight_offset;
  dropout_params dropout;
  dtype type, residual_type, weight_type, bias_type;
};

// How narrow rows are spread: each over `lanes` lanes, of so many elements each.
struct norm_narrow_shape {
  static constexpr int kElements = 8, kBackwardThreads = 256, kBackwardBlocks = 3;
  int lanes;

  static constexpr norm_narrow_shape of(int64_t width, int elements = kElements) {
    return {int(std::bit_ceil(uint64_t(width + elements - 1) / elements))};
  }
  constexpr int rows_of(int threads) const { return threads / lanes; }
};

// The shape of the backward's grid. A row is spread over `warps` warps of 16 elements a lane, and a
// block works on `groups` rows at once; above kNormFusedWidth a row no longer fits one block's
// registers, and the backward reads it twice.
struct norm_backward_shape {
  static constexpr int kWarpColumns = 512;
  int warps, groups;

  static constexpr norm_backward_shape of(int64_t width) {
    const int warps = int((width + kWarpColumns - 1) / kWarpColumns);
    return {warps, std::max(1, 8 / warps)};
  }
  constexpr int blocks_per_multiprocessor() const { return warps * groups > 8 ? 1 : 2; }
};
inline constexpr int64_t kNormFusedWidth = 16 * norm_backward_shape::kWarpColumns;

// Whether rows that are one distance apart get all their gradients in one launch, without partial
// sums: norm_backward_few.cuh.
inline bool norm_rows_are_few(int64_t rows, int64_t width, int multiprocessors) {
  return width <= kNormFusedWidth && rows <= int64_t(2) * multiprocessors;
}

// Else, how many partial sums of dweight and dbias the backward makes before it adds them up: one a
// block. A function of the shape and the GPU model alone, so the bits are the same on every run.
inline int64_t norm_partial_rows(int64_t rows, int64_t width, int multiprocessors) {
  if (width > kNormFusedWidth) return std::min<int64_t>(rows, 64);
  const auto blocks_of = [&](int64_t groups, int64_t most) {
    return std::min<int64_t>((rows + groups - 1) / groups, multiprocessors * most);
  };
  if (width <= kNormNarrowWidth) {
    using narrow = norm_narrow_shape;
    return blocks_of(narrow::of(width).rows_of(narrow::kBackwardThreads), narrow::kBackwardBlocks);
  }
  const auto shape = norm_backward_shape::of(width);
  return blocks_of(shape.groups, shape.blocks_per_multiprocessor());
}

}  // namespace thunderkittens
