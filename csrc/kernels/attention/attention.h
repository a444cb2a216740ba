// attention: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/attention.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/attention.h"

namespace thunderkittens {

struct attention_forward_params {
  const void* q;       // [batch, rows, heads, head_dim] of `type`
  const void* k;       // [batch, keys, key_heads, head_dim] of `type`
  const void* v;       // [batch, keys, key_heads, value_dim] of `type`
  void* o;             // [batch, rows, heads, value_dim] of `type`, contiguous
  float* lse;          // [batch, heads, rows], natural logarithm; or null: not wanted
  const float* sinks;  // [heads]: a logit more in each row's denominator; or null
  // Of the dynamic tile scheduler: zero before the launch and after it. Or null: a static schedule,
  // which suits calls without a mask. Launches that may run at the same time have one each.
  int* tile_counter;
  // Null without sequences; else `sequences` + 1 numbers of int32, or of int64.
  const void *cu_seqlens_q, *cu_seqlens_k;
  bool int64_seqlens_q, int64_seqlens_k;
  int64_t sequences;
  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;
  attention_strides q_strides, k_strides, v_strides;
  float scale;
  float softcap;        // score = softcap · tanh(score / softcap); 0: score as it is
  int64_t left, right;  // row i sees the keys from i + keys − rows − left to … + right; at least 0
  dtype type;
};

inline constexpr kittens::host::kernel_entry<attention_forward_params> kAttentionForward{
    "attention_forward"};

}  // namespace thunderkittens
