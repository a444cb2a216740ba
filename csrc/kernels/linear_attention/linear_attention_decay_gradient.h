// The gradient of linear attention's decays: what the host passes to the launcher. No torch, no
// device code.
#pragma once

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/linear_attention.h"

namespace thunderkittens {

// Tokens that a block adds up.
inline constexpr int64_t kLinearAttentionDecayTile = 256;

// The backward's tensors, and what lies in its workspace.
struct linear_attention_decay_gradient_params {
  const float *q_dots, *k_dots;  // [batch, length, heads, dots]
  const float* weights;          // of k_dots, [batch, length, heads] by strides; or null: 1
  linear_attention_strides weight_strides;
  const float *initial_state, *d_initial_state;  // [sequences, heads, state]; or both null: zeros
  float* d_log_decay;                            // [batch, length, heads], contiguous
  // Of each tile of tokens, [batch, tiles, heads], the sum since a sequence last began in it; and
  // ⟨initial, d_initial⟩ of each state, [sequences, heads], where there are states.
  double *tile_sums, *state_sums;
  const void* cu_seqlens;  // [sequences + 1] of int32, or of int64; or null: not packed
  bool int64_seqlens;
  int64_t sequences;  // batch, where they are not packed
  int64_t batch, length, heads;
  int64_t dots;   // of a token and head: 1 or 2
  int64_t state;  // numbers of a state
};

inline constexpr kittens::host::kernel_entry<linear_attention_decay_gradient_params>
    kLinearAttentionDecayGradient{"linear_attention_decay_gradient"};

}  // namespace thunderkittens
