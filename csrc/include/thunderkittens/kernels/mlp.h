// The products of an MLP beside its gelu, with all that is done element by element behind them, and
// sums of columns, which gradients of biases are: what to compute, where, and the launch. Plain C++
// without torch.
//
//   linear_gelu:            hidden = x · W + b,   activated = gelu(hidden)
//   linear_gelu_backward:   dhidden = (dy · W) ∘ gelu'(hidden),   dbias = Σ(rows) dhidden
//   column_sums:            sums = Σ(rows) x
//
// W is [inner, outer] in both: the forward's is the weight in front of gelu, the backward's the
// transpose of the one behind it. (cuBLASLt calls these epilogues GELU_AUX_BIAS and DGELU_BGRAD.)
//
//   const auto planned = plan(linear_gelu_problem{.rows = m, .inner = k, .outer = n, .x_stride = k,
//                                                 .weight_stride = k, .k_major = true,
//                                                 .type = dtype::bfloat16},
//                             *find_device(0));
//   launch(planned, {.x = x, .weight = w, .bias = b, .hidden = h, .activated = a}, {}, stream);
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/activation.h"
#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct linear_gelu_params;
struct linear_gelu_backward_params;
struct column_sums_params;

// For Hopper; of bf16 and fp16. Rows start at multiples of 16 bytes, and outer is a multiple of 8.
// Strides: elements from row to row.
struct linear_gelu_problem {
  int64_t rows, inner, outer;
  int64_t x_stride, weight_stride;
  bool k_major;  // the weight lies as [outer, inner], else as [inner, outer]
  activation function = activation::gelu_tanh;
  dtype type;
};
struct linear_gelu_tensors {  // of `type`
  const void* x;              // [rows, inner]
  const void* weight;
  const void* bias = nullptr;  // [outer], or null
  void* hidden = nullptr;      // [rows, outer], contiguous, or null: not wanted
  void* activated;             // [rows, outer], contiguous
};
using linear_gelu_plan = plain_plan<linear_gelu_problem, linear_gelu_params>;

struct linear_gelu_backward_problem {
  int64_t rows, inner, outer;
  int64_t dy_stride, weight_stride;
  bool k_major;
  activation function = activation::gelu_tanh;
  dtype type;
};
struct linear_gelu_backward_tensors {  // of `type`
  const void* dy;                      // [rows, inner]
  const void* weight;
  const void* hidden;       // [rows, outer], contiguous
  void* dhidden;            // [rows, outer], contiguous
  void* dbias = nullptr;    // [outer], or null: not wanted
  bool accumulate = false;  // dbias is added to
};
using linear_gelu_backward_plan =
    plain_plan<linear_gelu_backward_problem, linear_gelu_backward_params>;

// On every architecture; of all dtypes. Rows of x start at multiples of 16 bytes, and width is a
// multiple of what 16 bytes hold.
struct column_sums_problem {
  int64_t rows, width, stride;
  dtype type;
};
struct column_sums_tensors {  // of `type`
  const void* x;              // [rows, width]
  void* sums;                 // [width]
  bool accumulate = false;    // sums are added to
};
using column_sums_plan = plain_plan<column_sums_problem, column_sums_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const linear_gelu_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const linear_gelu_backward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const column_sums_problem& problem);

// Whether torch's product and what follows it are faster on the device than a product beside gelu,
// though a kernel computes it.
KITTENS_EXPORT bool is_faster_by_torch(int64_t rows, int64_t inner, const device& d);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT linear_gelu_plan plan(const linear_gelu_problem& problem, const device& d);
KITTENS_EXPORT linear_gelu_backward_plan plan(const linear_gelu_backward_problem& problem,
                                              const device& d);
KITTENS_EXPORT column_sums_plan plan(const column_sums_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const linear_gelu_plan& plan, const linear_gelu_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const linear_gelu_backward_plan& plan,
                           const linear_gelu_backward_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const column_sums_plan& plan, const column_sums_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
