// attention: what the host passes to the launchers. No torch, no device code.
//
//   o = softmax(scale · q kᵀ, masked) v,   lse = log Σ exp(scale · q kᵀ, masked),   per query row
#pragma once

#include <cstdint>

#include "kittens/host/dtype.h"

namespace thunderkittens {

using kittens::host::dtype;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct attention_strides {
  int64_t batch, row, head;
};

// Launcher "attention_forward": bf16 and fp16, head dimensions 64 and 128, scale > 0.
//
// TMA reads q, k and v: their addresses are multiples of 16 bytes, and so are the strides of every
// dimension larger than 1.
struct attention_forward_params {
  const void* q;  // [batch, rows, heads, head_dim] of `type`
  const void* k;  // [batch, keys, key_heads, head_dim] of `type`
  const void* v;  // [batch, keys, key_heads, head_dim] of `type`
  void* o;        // [batch, rows, heads, head_dim] of `type`, contiguous
  float* lse;     // [batch, heads, rows], natural logarithm; or null: not wanted
  int64_t batch, rows, keys, heads, key_heads, head_dim;
  attention_strides q_strides, k_strides, v_strides;
  float scale;
  bool causal;  // row i sees the keys up to i + keys − rows
  dtype type;
};

}  // namespace thunderkittens
