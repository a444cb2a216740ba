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

// Launcher "attention_forward": bf16 and fp16, head dimensions 8, 16 … 256, scale > 0.
//
// TMA reads q, k and v: their addresses are multiples of 16 bytes, and so are the strides of every
// dimension larger than 1.
struct attention_forward_params {
  const void* q;       // [batch, rows, heads, head_dim] of `type`
  const void* k;       // [batch, keys, key_heads, head_dim] of `type`
  const void* v;       // [batch, keys, key_heads, value_dim] of `type`
  void* o;             // [batch, rows, heads, value_dim] of `type`, contiguous
  float* lse;          // [batch, heads, rows], natural logarithm; or null: not wanted
  const float* sinks;  // [heads]: a logit more in each row's denominator; or null
  // Zero before the launch and after it; or null: tiles are dealt out beforehand, which suits calls
  // without a mask. Launches that may run at the same time have one each.
  int* tiles_drawn;
  // Of packed sequences: batch is 1, and rows and keys are those of all together. Sequence i has
  // the rows from cu_seqlens_q[i] to cu_seqlens_q[i + 1], and keys likewise; numbers that decrease
  // or exceed the tensor's rows count as the nearest that do not. Rows of no sequence see no key.
  // Null without sequences; else `sequences` + 1 numbers of int32, or of int64.
  const void *cu_seqlens_q, *cu_seqlens_k;
  bool wide_seqlens_q, wide_seqlens_k;
  int64_t sequences;
  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;
  attention_strides q_strides, k_strides, v_strides;
  float scale;
  float softcap;        // score = softcap · tanh(score / softcap); 0: score as it is
  int64_t left, right;  // row i sees the keys from i + keys − rows − left to … + right; at least 0
  dtype type;
};

}  // namespace thunderkittens
