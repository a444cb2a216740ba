// One call of mamba2, and what the .cpp files of the op share. Torch, unlike mamba2.h.
#pragma once

#include <array>

#include "binding/tensors.h"

namespace thunderkittens {

// What a call was given.
struct mamba2_call {
  Tensor x, dt, A, B, C;
  optional_tensor D, dt_bias;
  bool dt_softplus = false;
  double dt_min = 0;
  std::optional<double> dt_max;  // none: infinity
  optional_tensor initial_state;
  // Where packed sequences start and end: x, dt, B and C are [T, …] then.
  optional_tensor cu_seqlens;
};

// The numbers of what the kernels read in float32; of none, an undefined tensor and null.
inline Tensor floats(const optional_tensor& t) {
  return t ? t->to(at::kFloat).contiguous() : Tensor();
}
inline const float* data_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

// y and the final state.
using mamba2_results = tensor_array<2>;

// dx, ddt, dA, dB, dC, dD, ddt_bias, dinitial_state; undefined is what is not needed.
using mamba2_gradients = tensor_array<8>;

// What a call of the backward was given.
struct mamba2_backward_call {
  mamba2_call forward;
  Tensor dy;
  optional_tensor dfinal_state;
  std::array<bool, 8> needs;

  // Whether somebody wants the gradient of dt'.
  bool needs_gates() const {
    return needs[1] || needs[2] || (needs[6] && forward.dt_bias.has_value());
  }
};

// Packed sequences are in one batch, [1, T, …]; where they end is not read back.
mamba2_results mamba2_by_aten(const mamba2_call& c);
mamba2_gradients mamba2_backward_by_aten(const mamba2_backward_call& b);

}  // namespace thunderkittens
