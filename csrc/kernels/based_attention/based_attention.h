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

// A tensor [batch, length, heads, width].
struct based_attention_operand {
  const void* data;
  based_attention_strides strides;
};

struct based_attention_params {
  based_attention_operand q, k;  // of `keys` columns
  based_attention_operand v;     // of `values` columns
  void* o;                       // [batch, length, heads, values], contiguous
  // States [batch, heads, F, values] and sums [batch, heads, F], contiguous; or null.
  const float* initial_state;
  const float* initial_sums;
  float* final_state;
  float* final_sums;
  // The state that each segment adds, [segments, batch, heads, F, values], and its sums; or both
  // null: one segment.
  float* segment_states;
  float* segment_sums;
  int64_t batch, length, heads, keys, values;
  int64_t segment_chunks;
  float scale, eps;
  bool normalize;
  dtype type;
};

inline constexpr kittens::host::kernel_entry<based_attention_params> kBasedAttention{
    "based_attention"};

}  // namespace thunderkittens
