// The gradient of linear attention's decays: what the host passes to the launcher. No torch, no
// device code.
#pragma once

#include "kernels/linear_attention/linear_attention.h"
#include "kittens/host/launchers.h"

namespace thunderkittens {

// The backward's tensors, and what lies in its workspace.
struct linear_attention_decay_gradient_params {
  const float *q_dots, *k_dots;  // [batch, length, heads, dots]
  const float* weights;          // of k_dots, [batch, length, heads] by strides; or null: 1
  linear_attention_strides weight_strides;
  // ⟨S, dS⟩ of each anchor, [slots, heads, 4 · dots], to be added up: of a sequence's first token
  // where there is an initial state, else it is 0.
  const float* products;
  bool initial_state, d_final_state;  // whether they are there
  float* d_log_decay;                 // [batch, length, heads], contiguous
  const void* cu_seqlens;             // [sequences + 1] of int32, or of int64; or null: not packed
  bool int64_seqlens;
  int64_t sequences;  // batch, where they are not packed
  int64_t batch, length, heads;
  int64_t dots;    // of a token and head: 1 or 2
  int64_t anchor;  // tokens from one anchor to the next: 128 or 256
};

// Slots of anchors, of which a block of the gradient's has one: at least as many as there are.
constexpr int64_t linear_attention_anchor_slots(int64_t length, int64_t sequences, bool packed,
                                                int64_t anchor) {
  const int64_t of_one = (length + anchor - 1) / anchor;
  // Tokens in front of all packed sequences, and behind them, are as those of two more.
  return packed ? of_one + sequences + 1 : of_one * sequences;
}

inline constexpr kittens::host::kernel_entry<linear_attention_decay_gradient_params>
    kLinearAttentionDecayGradient{"linear_attention_decay_gradient"};

}  // namespace thunderkittens
