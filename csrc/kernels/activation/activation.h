// swiglu, geglu and gelu: what the host passes to the launchers. No torch, no device code.
//
//   gated: y = f(gate) · up        gelu: y = f(x)        element by element
//
// All tensors of a call have one shape. Where they are contiguous, it is one long row. What is
// written starts at a multiple of 16 bytes, what is read at any element.
#pragma once

#include <cstdint>

#include "kittens/host/dtype.h"

namespace thunderkittens {

using kittens::host::dtype;

// f. swiglu has silu; geglu and gelu have either gelu.
enum class activation : int32_t {
  silu,       // x · σ(x)
  gelu_tanh,  // x · σ(2 √(2/π) (x + 0.044715 x³)), which is its tanh form
  gelu_erf,   // x · Φ(x), Φ the normal distribution
};

// Launchers "swiglu_forward" and "geglu_forward".
struct gated_forward_params {
  const void* gate;  // [rows, width] of `type`, rows `gate_stride` elements apart
  const void* up;    // [rows, width] of `type`, rows `up_stride` elements apart
  void* y;           // [rows, width] of `type`, contiguous
  int64_t rows, width, gate_stride, up_stride;
  activation function;
  dtype type;
};

// Launchers "swiglu_backward" and "geglu_backward".
struct gated_backward_params {
  const void* dy;    // [rows, width] of `type`, rows `dy_stride` elements apart
  const void* gate;  // [rows, width] of `type`, rows `gate_stride` elements apart
  const void* up;    // [rows, width] of `type`, rows `up_stride` elements apart
  void* dgate;       // [rows, width] of `type`, contiguous, or null: not wanted
  void* dup;         // [rows, width] of `type`, contiguous, or null: not wanted
  int64_t rows, width, dy_stride, gate_stride, up_stride;
  activation function;
  dtype type;
};

// Launcher "gelu_forward".
struct gelu_forward_params {
  const void* x;  // [rows, width] of `type`, rows `x_stride` elements apart
  void* y;        // [rows, width] of `type`, contiguous
  int64_t rows, width, x_stride;
  activation function;
  dtype type;
};

// Launcher "gelu_backward".
struct gelu_backward_params {
  const void* dy;  // [rows, width] of `type`, rows `dy_stride` elements apart
  const void* x;   // [rows, width] of `type`, rows `x_stride` elements apart
  void* dx;        // [rows, width] of `type`, contiguous
  int64_t rows, width, dy_stride, x_stride;
  activation function;
  dtype type;
};

}  // namespace thunderkittens
