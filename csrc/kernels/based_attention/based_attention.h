// based_attention: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/based_attention.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/based_attention.h"

namespace thunderkittens {

inline constexpr int64_t kBasedChunk = 64;        // tokens
inline constexpr int64_t kBasedWidestKey = 16;    // columns of q and k
inline constexpr int64_t kBasedBlockValues = 64;  // columns of v and o that a block works on

// What tensors do in a pass: based_attention_tile.cuh.
enum class based_attention_pass : uint8_t { forward, dq, dk_dv };

// A tensor [batch, length, heads, width].
struct based_attention_operand {
  const void* data = nullptr;
  based_attention_strides strides = {};
};

struct based_attention_params {
  based_attention_pass pass;
  based_attention_operand k;           // what the state is made of: of `keys` columns
  based_attention_operand v;           // of `values` columns
  based_attention_operand row_keys;    // as k
  based_attention_operand row_values;  // as v; of gradients alone
  void* o = nullptr;                   // [batch, length, heads, values], contiguous; or null
  void* key_gradients = nullptr;       // [batch, length, heads, keys]; or null
  // States [batch, heads, F, values] and sums [batch, heads, F], contiguous; each may be null.
  const float* initial_state = nullptr;
  const float* initial_sums = nullptr;
  float* final_state = nullptr;
  float* final_sums = nullptr;
  // The state that each segment adds, [segments, batch, heads, F, values], and its sums; or both
  // null: one segment.
  float* segment_states = nullptr;
  float* segment_sums = nullptr;
  // [batch, heads, chunks · 64, 2]: of each token 1 / D and the gradient of D; of gradients with
  // `normalize` alone.
  void* factors = nullptr;
  int64_t batch, length, heads, keys, values;
  int64_t segment_chunks;
  float scale, eps;
  bool normalize;
  dtype type;
};

struct based_attention_step_params {
  based_attention_step_problem problem;
  based_attention_step_tensors tensors;
};

inline constexpr kittens::host::kernel_entry<based_attention_params> kBasedAttention{
    "based_attention"};
inline constexpr kittens::host::kernel_entry<based_attention_step_params> kBasedAttentionStep{
    "based_attention_step"};

}  // namespace thunderkittens
