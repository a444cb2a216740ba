// One call of hedgehog_attention, and what the .cpp files of the op share. Torch, unlike
// hedgehog_attention.h.
#pragma once

#include <array>

#include "binding/tensors.h"

namespace thunderkittens {

// What a call was given.
struct hedgehog_attention_call {
  Tensor q, k, v, q_map, k_map, alpha, beta;
  optional_tensor kv_state, k_state;
  optional_tensor first;  // of the 64 rows of k and v before q's first token, that exists

  bool has_window() const { return k.size(1) != q.size(1); }
};

// y, and the state: Σ φ(k) vᵀ and Σ φ(k).
using hedgehog_attention_results = tensor_array<3>;

// Of q, k, v, q_map, k_map, alpha, beta, kv_state, k_state; undefined is what is not needed.
using hedgehog_attention_gradients = tensor_array<9>;

// What a call of the backward was given.
struct hedgehog_attention_backward_call {
  hedgehog_attention_call forward;
  optional_tensor dy, dkv_final, dk_final;
  std::array<bool, 9> needs;
};

// Of at least one token.
hedgehog_attention_results hedgehog_attention_by_aten(const hedgehog_attention_call& c);
hedgehog_attention_gradients hedgehog_attention_backward_by_aten(
    const hedgehog_attention_backward_call& b);

}  // namespace thunderkittens
