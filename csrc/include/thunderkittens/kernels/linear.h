// linear and quantized_linear: a few rows times the transpose of a weight, read once. What to
// compute, where, and the launch. Plain C++ without torch.
//
//   y(m, n) = act(Σ(k) z(m, k) weight(n, k) + bias(n)) + residual(m, n)
//
// act is the identity, or silu(gate) · up, where row n of the weight makes gate and row
// out_features + n makes up. z is x; or, normalized, its RMSNorm: x(m, k) norm_weight(k) / √(the
// mean of x(m, ·)² + norm_eps). A quantized weight is
//
//   weight(n, k) = e4m3(n, k) scale(n)
//   weight(n, k) = (int4(n, k) − zero(n, k / group)) scale(n, k / group)
//
// the latter rounded to `type`. Of int4, eight neighbours are four bytes, in which numbers 0, 2, 4,
// 6, 1, 3, 5, 7 follow each other from the lowest bits on.
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct linear_params;

enum class linear_weight { plain, e4m3, int4 };

// bf16 and, not normalized, fp16; 1 … kMostRows rows, but of a quantized weight, and where there is
// no kernel for Hopper, 1 … kFewRows. Rows of x and of the weight start at
// multiples of 16 bytes; normalized, in_features is even, and norm_weight at a multiple of 4 bytes.
// in_features is a multiple of 16 for e4m3, and for int4 of group, which is one of 32.
struct linear_problem {
  static constexpr int64_t kFewRows = 16, kMostRows = 64;

  int64_t rows, in_features, out_features;  // of y
  int64_t x_stride, weight_stride;          // from row to row, in elements; int4: in pairs
  bool gated = false;                       // twice as many rows of the weight, and bias
  bool normalized = false;
  double norm_eps = 0;
  dtype type;
  linear_weight weight = linear_weight::plain;
  int64_t group = 0;  // int4: columns that share a scale
  // The caller's promise that weight, weight_scale and weight_zero are written by no kernel that
  // this launch may overlap: not by the one directly in front of it in its stream, nor by those
  // that may still run beside that (kittens/pipeline/programmatic_launch.cuh). Then the weight's
  // first bytes are read before that kernel has ended; x and all else as ever. The same bits. (Code
  // made for an architecture before sm_90 overlaps nothing, and takes no notice.)
  // Where the promise is broken, what was there before may be multiplied.
  bool weight_is_constant = false;
};

struct linear_tensors {
  const void* x;                   // [rows, in_features] of `type`
  const void* weight;              // [out_features, in_features] of `type`, or bytes: e4m3, or two
                                   // int4; gated: twice the rows
  const void* bias = nullptr;      // [out_features] of `type`, gated: twice; or null
  const void* residual = nullptr;  // as y, or null
  const void* norm_weight = nullptr;  // [in_features] of `type`; normalized
  void* y;                            // [rows, out_features] of `type`, contiguous
  // e4m3: [out_features] of float; int4: [out_features, in_features / group] of `type`; gated,
  // twice the rows
  const void* weight_scale = nullptr;
  const void* weight_zero = nullptr;  // int4: as weight_scale, of uint8, below 16; null: 8
};

struct linear_plan : plain_plan<linear_problem, linear_params> {
  int blocks = 0, generic_blocks = 0;
};

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const linear_problem& problem);

// Whether torch's product is faster on the device, though a kernel computes this.
KITTENS_EXPORT bool is_faster_by_torch(const linear_problem& problem, const device& d);

// Throws error where there is no kernel, or none for the device.
KITTENS_EXPORT linear_plan plan(const linear_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const linear_plan& plan, const linear_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
