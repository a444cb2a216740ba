// attention: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/attention.h: what the op computes.)
#pragma once

#include <algorithm>
#include <cstddef>
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

// How the backward divides a head, and what lies between its kernels: parts of the workspace, one
// after the other, each at a multiple of 16 bytes.
struct attention_backward_layout {
  static constexpr int64_t kKeys = 128;        // of a tile
  static constexpr int64_t kBoundsBytes = 16;  // of a tile: attention_key_bounds

  int64_t width;                   // D and Dv with zeros: 64 or 128
  int64_t rows;                    // of a block of queries: 128 or 64
  int64_t row_blocks, key_blocks;  // of a head
  // In bytes from the start of the workspace.
  int64_t dq;          // [batch, heads, row blocks] of `rows` × `width` int32
  int64_t records;     // [batch, heads, row blocks] of attention_row_block
  int64_t dq_factors;  // [batch, heads, row blocks, rows] of float
  int64_t bounds;      // [batch, key heads, key blocks] of attention_key_bounds
  int64_t bytes;       // of all

  explicit constexpr attention_backward_layout(const attention_forward_problem& p)
      : attention_backward_layout(p.batch, p.rows, p.keys, p.heads, p.key_heads,
                                  std::max(p.head_dim, p.value_dim)) {}
  constexpr attention_backward_layout(int64_t batch, int64_t q_rows, int64_t keys, int64_t heads,
                                      int64_t key_heads, int64_t head_dim)
      : width(head_dim <= 64 ? 64 : 128),
        rows(head_dim <= 64 ? 128 : 64),
        row_blocks((q_rows + rows - 1) / rows),
        key_blocks((keys + kKeys - 1) / kKeys) {
    const int64_t padded_rows = batch * heads * row_blocks * rows;
    dq = 0;
    records = dq + padded_rows * width * 4;
    dq_factors = records + padded_rows * 8;
    bounds = dq_factors + padded_rows * 4;
    bytes = bounds + batch * key_heads * key_blocks * kBoundsBytes;
  }
};

struct attention_backward_params {
  const void* q;         // [batch, rows, heads, head_dim] of `type`
  const void* k;         // [batch, keys, key_heads, head_dim] of `type`
  const void* v;         // [batch, keys, key_heads, value_dim] of `type`
  const void* o;         // [batch, rows, heads, value_dim] of `type`
  const void* d_o;       // the same
  const float* lse;      // [batch, heads, rows], natural logarithm
  const float* dlse;     // the same; or null: zeros
  const float* sinks;    // [heads]; or null
  void* dq;              // as q, contiguous; or null: not wanted
  void* dk;              // as k, contiguous
  void* dv;              // as v, contiguous
  float* dsinks;         // [heads]; or null: not wanted
  std::byte* workspace;  // of attention_backward_layout
  int* tile_counter;     // as the forward's
  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;
  attention_strides q_strides, k_strides, v_strides, o_strides, do_strides;
  float scale, softcap;
  int64_t left, right;
  dtype type;
};

inline constexpr kittens::host::kernel_entry<attention_forward_params> kAttentionForward{
    "attention_forward"};
inline constexpr kittens::host::kernel_entry<attention_backward_params> kAttentionBackward{
    "attention_backward"};

}  // namespace thunderkittens
