// One call of based_attention, and what the .cpp files of the op share. Torch, unlike
// based_attention.h.
#pragma once

#include <array>

#include "binding/attention_scale.h"
#include "binding/tensors.h"

namespace thunderkittens {

// What a call was given.
struct based_attention_call {
  Tensor q, k, v;
  bool normalize;
  double eps;
  std::optional<double> scale;
  optional_tensor initial_state, initial_sums;

  double scale_or_usual() const { return attention_scale(scale, q.size(-1)); }
};

// o, the final state and the final sums.
using based_attention_results = tensor_array<3>;

// dq, dk, dv, dinitial_state, dinitial_sums; undefined is what is not needed.
using based_attention_gradients = tensor_array<5>;

// What a call of the backward was given.
struct based_attention_backward_call {
  based_attention_call forward;
  Tensor dout;
  optional_tensor dfinal_state, dfinal_sums;
  std::array<bool, 5> needs;
};

based_attention_results based_attention_by_aten(const based_attention_call& c);
based_attention_gradients based_attention_backward_by_aten(const based_attention_backward_call& b);

}  // namespace thunderkittens
