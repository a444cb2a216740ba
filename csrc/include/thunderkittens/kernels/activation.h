// swiglu, geglu and gelu, forward and backward: what to compute, where, and the launch. Plain C++
// without torch.
//
//   gated: y = f(gate) · up        gelu: y = f(x)        element by element
//
// All tensors of a call have one shape. Where they are contiguous, it is one long row. What is
// written starts at a multiple of 16 bytes, what is read at any element.
//
//   const auto planned = plan(gelu_forward_problem{.function = activation::gelu_tanh, .rows = 1,
//                                                  .width = count, .x_stride = count,
//                                                  .type = dtype::float16}, *find_device(0));
//   launch(planned, {.x = x, .y = y}, {}, stream);
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct gated_forward_params;
struct gated_backward_params;
struct gelu_forward_params;
struct gelu_backward_params;

// f. swiglu has silu; geglu and gelu have either gelu.
enum class activation : int32_t {
  silu,       // x · σ(x)
  gelu_tanh,  // x · σ(2 √(2/π) (x + 0.044715 x³)), which is its tanh form
  gelu_erf,   // x · Φ(x), Φ the normal distribution
};

// Strides: elements between the rows of what is read.
struct gated_forward_problem {
  activation function;
  int64_t rows, width, gate_stride, up_stride;
  dtype type;
};
struct gated_forward_tensors {  // [rows, width] of `type`
  const void *gate, *up;
  void* y;  // contiguous
};
using gated_forward_plan = plain_plan<gated_forward_problem, gated_forward_params>;

struct gated_backward_problem {
  activation function;
  int64_t rows, width, dy_stride, gate_stride, up_stride;
  dtype type;
};
struct gated_backward_tensors {  // [rows, width] of `type`
  const void *dy, *gate, *up;
  void* dgate = nullptr;  // contiguous, or null: not wanted
  void* dup = nullptr;    // contiguous, or null: not wanted
};
using gated_backward_plan = plain_plan<gated_backward_problem, gated_backward_params>;

struct gelu_forward_problem {
  activation function;
  int64_t rows, width, x_stride;
  dtype type;
};
struct gelu_forward_tensors {  // [rows, width] of `type`
  const void* x;
  void* y;  // contiguous
};
using gelu_forward_plan = plain_plan<gelu_forward_problem, gelu_forward_params>;

struct gelu_backward_problem {
  activation function;
  int64_t rows, width, dy_stride, x_stride;
  dtype type;
};
struct gelu_backward_tensors {  // [rows, width] of `type`
  const void *dy, *x;
  void* dx;  // contiguous
};
using gelu_backward_plan = plain_plan<gelu_backward_problem, gelu_backward_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const gated_forward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const gated_backward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const gelu_forward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const gelu_backward_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT gated_forward_plan plan(const gated_forward_problem& problem, const device& d);
KITTENS_EXPORT gated_backward_plan plan(const gated_backward_problem& problem, const device& d);
KITTENS_EXPORT gelu_forward_plan plan(const gelu_forward_problem& problem, const device& d);
KITTENS_EXPORT gelu_backward_plan plan(const gelu_backward_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const gated_forward_plan& plan, const gated_forward_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const gated_backward_plan& plan, const gated_backward_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const gelu_forward_plan& plan, const gelu_forward_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const gelu_backward_plan& plan, const gelu_backward_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
