// One call of linear attention, and what the .cpp files of the op share. Torch, unlike
// linear_attention.h.
#pragma once

#include <array>

#include "binding/attention_scale.h"
#include "binding/tensors.h"

namespace thunderkittens {

// What a call was given.
struct linear_attention_call {
  Tensor q, k, v;
  optional_tensor log_decay;
  std::optional<double> scale;
  optional_tensor initial_state;
  // Where packed sequences start and end: q, k, v and log_decay are [T, …] then.
  optional_tensor cu_seqlens;

  double scale_or_usual() const { return attention_scale(scale, q.size(-1)); }
  // [sequences, H, K, V].
  Tensor empty_state() const;
};

// o and the final state.
using linear_attention_results = tensor_array<2>;

// dq, dk, dv, dlog_decay, dinitial_state; undefined is what is not needed.
using linear_attention_gradients = tensor_array<5>;

// What a call of the backward was given.
struct linear_attention_backward_call {
  linear_attention_call forward;
  Tensor dout;
  optional_tensor dfinal_state;
  std::array<bool, 5> needs;
};

// Packed sequences are in one batch, [1, T, …]; where they end is not read back.
linear_attention_results linear_attention_by_aten(const linear_attention_call& c);
linear_attention_gradients linear_attention_backward_by_aten(
    const linear_attention_backward_call& b);

// Raises unless `cu_seqlens`, if given, has a number more than there are packed sequences, and the
// state, if given, is of as many.
void check_sequences(const char* op, const char* name, const optional_tensor& state,
                     const optional_tensor& cu_seqlens);

// [B, S, H, D] of each head, to [B, S, Hk, D], as dq and dk of the heads that share one are.
Tensor add_up_heads(const Tensor& of_heads, const Tensor& like);

}  // namespace thunderkittens
