// linear attention: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/linear_attention.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/linear_attention.h"

namespace thunderkittens {

inline constexpr int64_t kLinearAttentionChunk = 64;  // tokens

// Blocks that a multiprocessor holds, of the kernel that computes outputs and of the one that finds
// the states of parts. Registers say so: the state takes 32 or 64 of a thread, scores and o 64
// more.
constexpr int linear_attention_blocks(int64_t keys, int64_t values, bool outputs) {
  const bool narrow = keys <= 64;
  if (values <= 64) return outputs ? (narrow ? 3 : 2) : (narrow ? 4 : 3);
  return outputs ? 1 : 2;
}

// Blocks of two heads each that a multiprocessor holds, where they make their gates: of one
// warpgroup a head, and of the warp-specialized kernel; and blocks of a part of a head.
inline constexpr int kLinearAttentionPairBlocks = 2, kLinearAttentionWarpSpecializedBlocks = 1,
                     kLinearAttentionPartBlocks = 3;

// A tensor [batch, length, heads, width] of the kernel's roles, of which `share` of the call's
// heads read one.
struct linear_attention_operand {
  const void* data;
  linear_attention_strides strides;
  int64_t share = 1;
};

// Of each head a state, of which keys lie `key_stride` and values `value_stride` elements apart.
struct linear_attention_states {
  float* data = nullptr;
  int64_t key_stride, value_stride;
};

// o = scale · the recurrence of q, k and v: of the forward, or one of the gradients, whose roles
// other tensors play (linear_attention_chunkwise.cuh).
struct linear_attention_params {
  linear_attention_operand q, k;  // of `keys` columns
  linear_attention_operand v;     // of `values` columns
  void* o;                        // [batch, length, heads, values], contiguous
  const float* log_decay;         // or null
  linear_attention_strides decay_strides;
  // w, [batch, length, heads], at least 0: of each token's k vᵀ, not in reverse; or of what is
  // multiplied by q of each row of o; or null: 1.
  const float* k_weights;
  const float* o_weights;
  linear_attention_strides weight_strides;
  linear_attention_steps steps;   // what k_weights and log_decay are made of; or dt null
  bool warp_specialized = false;  // with steps: linear_attention_warp_specialized.cuh
  const float* skip;  // [heads]: o += skip · v, whatever the scale and the weights; or null: 0
  linear_attention_states initial, final;
  // As o: what each row of o is multiplied by, before its weight and what skips, for …
  linear_attention_operand dotted;
  float* dots;        // … [batch, length, heads, (values + 63) / 64]; or null
  float* own_scores;  // q · k of each token, [batch, length, heads]; or null
  // Of the parts of sequences, [parts, sequences, heads, values, keys] in whole tiles, and their
  // decays, [parts, sequences, heads], log₂; or both null: one segment.
  linear_attention_states part_states;
  float* part_decays;
  bool finds_parts;  // else a launch before this one has found them
  // Of the anchors, in their slots: states [slots, heads, values, keys] of bf16 in whole tiles,
  // which the forward leaves and what is in reverse reads; and then of each 16 values their part of
  // ⟨S, dS⟩, [slots, heads, values / 16]; or both null. `anchors_first`: a first token's, too.
  void* anchor_states;
  float* anchor_products;
  bool anchors_first;
  int64_t anchor;  // tokens from one to the next, whole chunks: a power of two
  // Null without sequences; else where they start and end in one batch of `length` tokens:
  // `sequences` + 1 numbers of int32, or of int64.
  const void* cu_seqlens;
  bool int64_seqlens;
  int64_t sequences;
  int64_t batch, length, heads, keys, values;
  linear_attention_division division;
  float scale, initial_scale, final_scale;
  bool reverse;  // from the last token to the first
  dtype type;
};

inline constexpr kittens::host::kernel_entry<linear_attention_params> kLinearAttention{
    "linear_attention"};

}  // namespace thunderkittens
