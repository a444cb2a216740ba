// The norms, forward and backward: what to compute, where, and the launch. Plain C++ without torch.
//
//   y = (s − mean) · rstd · weight + bias,    rstd = 1 / sqrt(var + eps)      layer_norm
//   y = s · rstd · (weight + weight_offset),  rstd = 1 / sqrt(mean(s²) + eps)   rms_norm
//
// per row s of x, or (add_layer_norm, add_rms_norm) of s = dropout(x) + residual, which is an
// output as well.
//
//   const norm_forward_problem problem{.op = norm_op::layer_norm, .rows = 4096, .width = 1024,
//                                      .x_rows = {1024}, .type = dtype::bfloat16};
//   const norm_forward_plan forward = plan(problem, *find_device(0));
//   launch(forward, {.x = x, .weight = weight, .y = y}, {}, stream);
//
// Link libthunderkittens_kernels.so, and for the simulator _simulator.so.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct norm_forward_params;
struct norm_backward_params;

enum class norm_op : int8_t { layer_norm, rms_norm, add_layer_norm, add_rms_norm };

inline constexpr int64_t kNormMaxWidth = 65536;
inline constexpr int64_t kNormNarrowWidth = 256;  // up to here, a few lanes hold a row

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

struct norm_forward_problem {
  norm_op op;
  int64_t rows, width;
  row_strides x_rows;
  int64_t residual_stride = 0;  // elements between rows of the residual
  float eps = 1e-5f, weight_offset = 0.0f;
  bool round_first = false;  // round the normalised value to `type` before it meets the weight
  double dropout_p = 0.0;    // of add_…: how probable it is that an element of x is dropped
  dtype type;                // of x, y
  dtype residual_type = type, weight_type = type, bias_type = type;  // `type` or float32
};

// Matrices are [rows, width], their rows contiguous. What the op does not have is null.
struct norm_forward_tensors {
  const void* x;                   // of `type`
  const void* residual = nullptr;  // of `residual_type`
  const void* weight = nullptr;    // [width] of `weight_type`, or null: ones
  const void* bias = nullptr;      // [width] of `bias_type`, or null: zeros
  void* y;                         // of `type`, contiguous
  void* sum = nullptr;             // of `residual_type`, contiguous: dropout(x) + residual
  float* mean = nullptr;           // [rows], or null: not wanted
  float* rstd = nullptr;           // [rows], or null: not wanted
  const int64_t* seed = nullptr;   // [1], of dropout
};

using norm_forward_plan = plain_plan<norm_forward_problem, norm_forward_params>;

// The gradients of x, or of dropout(x) + residual, and of the parameters.
struct norm_backward_problem {
  norm_op op;
  int64_t rows, width;
  row_strides dy_rows, x_rows;
  int64_t dsum_stride = 0;  // elements between rows of dsum
  float weight_offset = 0.0f;
  double dropout_p = 0.0;
  bool parameter_gradients = true;  // dweight or dbias
  dtype type;                       // of dy, dx, and of x where nothing was added
  dtype residual_type = type, weight_type = type, bias_type = type;  // `type` or float32
};

struct norm_backward_tensors {
  const void* dy;                 // [rows, width] of `type`
  const void* x;                  // [rows, width] of `type`; the sum, of `residual_type`, of add_…
  const void* dsum = nullptr;     // [rows, width] of `residual_type`, or null: what arrives at the
                                  // sum itself
  const void* weight = nullptr;   // [width] of `weight_type`, or null: ones
  const float* mean = nullptr;    // [rows]; null without a mean
  const float* rstd;              // [rows]
  void* dx = nullptr;             // [rows, width] of `type`, contiguous, or null: not wanted
  void* dresidual = nullptr;      // [rows, width] of `residual_type`, contiguous, or null
  void* dweight = nullptr;        // [width] of `weight_type`, or null: not wanted
  void* dbias = nullptr;          // [width] of `bias_type`, or null: not wanted
  const int64_t* seed = nullptr;  // [1], of dropout
};

enum class norm_backward_path : int8_t {
  few,        // few rows: all gradients by one launch
  narrow,     // up to kNormNarrowWidth columns: a few lanes a row
  rows,       // a row in the registers of a group of warps
  long_rows,  // each row is read twice
};

// A function of the problem and the GPU model alone, so the bits are the same on every run.
struct norm_backward_plan : plain_plan<norm_backward_problem, norm_backward_params> {
  norm_backward_path path = norm_backward_path::rows;
  // Partial sums of dweight and dbias, one a block, which are added up in order; of few rows none.
  int64_t partial_rows = 0;
};

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const norm_forward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const norm_backward_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT norm_forward_plan plan(const norm_forward_problem& problem, const device& d);
KITTENS_EXPORT norm_backward_plan plan(const norm_backward_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const norm_forward_plan& plan, const norm_forward_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const norm_backward_plan& plan, const norm_backward_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
