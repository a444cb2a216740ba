// attention_decode: softmax attention of a few new tokens over a cache of keys and values, whose
// lengths are on the device; and cache_append, which writes the new keys and values there. What to
// compute, where, and the launch. Plain C++ without torch.
//
//   o(b, i, h) = Σ(j) p(j) v(b, j, h / group),   p = softmax(j) of scale · q(b, i, h) · k(b, j, …)
//
// over the keys j of sequence b up to token i's own, at position seqlens[b] − queries + i.
//
// Both take a cache as pages: [pages, page_size, key_heads, head_dim], and a table of the pages of
// each sequence. One without a table, [batch, length, …], is one long page a sequence.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct attention_decode_params;
struct cache_append_params;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct decode_strides {
  int64_t batch, token, head;  // of a cache, `batch` is from page to page
};

struct decode_cache {
  int64_t pages, page_size;  // without a table: batch, length
  decode_strides k_strides, v_strides;
  bool paged = false;        // there is a table
  int64_t table_width = 1;   // pages of a sequence: columns of the table
  int64_t table_stride = 1;  // elements between its rows
  bool e4m3 = false;         // its elements are of 8 bits, whatever type the others have

  int64_t capacity() const { return paged ? page_size * table_width : page_size; }
};

// bf16 and fp16, caches also of e4m3; heads of 8, 16, … 256 columns, multiples of 16 over a cache
// of e4m3; 1 … 16 queries; pages of 16 keys and more.
//
// Rows of the cache start at multiples of 16 bytes, rows of q and o at multiples of 4.
struct attention_decode_problem {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  int64_t batch, queries, heads, key_heads, head_dim;
  decode_strides q_strides, o_strides;
  decode_cache cache;
  double scale;
  double softcap = 0;   // 0: none
  int64_t left = kAll;  // keys before a token's own that it sees
  dtype type;
};

struct attention_decode_tensors {
  const void* q;                   // [batch, queries, heads, head_dim] of `type`
  const void* k;                   // [pages, page_size, key_heads, head_dim] of `type` or e4m3
  const void* v;                   // the same
  void* o;                         // as q
  const int* seqlens;              // [batch]: keys, the new ones too; taken as 0 … capacity
  const int* table;                // [batch, table_width]: taken as 0 … pages − 1; null without one
  const float* sinks = nullptr;    // [heads], logits without a value; or null
  const float* k_scale = nullptr;  // [key_heads], what keys of e4m3 are multiplied by; or null
  const float* v_scale = nullptr;  // the same of values
};

struct attention_decode_plan : plain_plan<attention_decode_problem, attention_decode_params> {
  int blocks = 0;
};

// k and v are written at positions seqlens − tokens … seqlens − 1. What has no place in the cache,
// or a page that is none, is not written.
//
// Any type. k is turned by the angle of its position first where there are tables.
struct cache_append_problem {
  int64_t batch, tokens, key_heads, head_dim;
  decode_strides k_strides, v_strides;
  decode_cache cache;
  int64_t rotated = 0;                                     // even and ≤ head_dim; 0: no tables
  int64_t table_rows = 0, cos_stride = 0, sin_stride = 0;  // elements between rows
  dtype type, table_type = type;                           // table_type: `type` or float32
};

struct cache_append_tensors {
  const void* k;                   // [batch, tokens, key_heads, head_dim] of `type`
  const void* v;                   // the same
  void* k_cache;                   // [pages, page_size, key_heads, head_dim] of `type` or e4m3
  void* v_cache;                   // the same
  const int* seqlens;              // [batch]: keys, the new ones too
  const int* table;                // [batch, table_width]; null without one
  const void* cos = nullptr;       // [table_rows, rotated / 2] of `table_type`; null: not turned
  const void* sin = nullptr;       // the same
  const float* k_scale = nullptr;  // [key_heads], what keys are divided by for e4m3; or null
  const float* v_scale = nullptr;  // the same of values
};

using cache_append_plan = plain_plan<cache_append_problem, cache_append_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const attention_decode_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const cache_append_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT attention_decode_plan plan(const attention_decode_problem& problem, const device& d);
KITTENS_EXPORT cache_append_plan plan(const cache_append_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const attention_decode_plan& plan,
                           const attention_decode_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const cache_append_plan& plan, const cache_append_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
