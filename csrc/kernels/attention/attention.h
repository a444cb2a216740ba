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
  // [batch] of int32, or of int64; null: not given. Not where packed.
  const void *seqused_k, *leftpad_k;
  bool int64_seqused_k, int64_leftpad_k;
  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;
  attention_strides q_strides, k_strides, v_strides;
  float scale;
  float softcap;        // score = softcap · tanh(score / softcap); 0: score as it is
  int64_t left, right;  // row i sees the keys from i + keys − rows − left to … + right; at least 0
  dtype type;
};

// Of [batch, length, heads, width] without gaps.
constexpr attention_strides contiguous_strides(int64_t length, int64_t heads, int64_t width) {
  return {length * heads * width, heads * width, width};
}

// Keys, or values, as TMA reads them where each batch has bounds of its own: the rows of all
// batches as one sequence.
struct attention_flat_rows {
  int64_t step;           // from a batch's first row to the next one's
  int64_t count, stride;  // of rows; in elements

  // Of [batch, keys, …] whose rows are `width` elements.
  static attention_flat_rows of(int64_t batch, int64_t keys, int64_t width,
                                const attention_strides& strides) {
    if (batch == 1) return {0, keys, keys == 1 ? width : strides.row};
    if (keys == 1) return {1, batch, strides.batch};
    const int64_t step = strides.batch / strides.row;
    return {step, (batch - 1) * step + keys, strides.row};
  }
  // Why there are none; null when there are.
  static const char* why_not(int64_t batch, int64_t keys, const attention_strides& strides) {
    constexpr int64_t kMostRows = int64_t{1} << 30;
    if (batch == 1 || keys <= 1) return nullptr;
    if (strides.row == 0 || strides.batch % strides.row != 0) {
      return "the stride of its batches is not a multiple of that of its rows";
    }
    if (strides.batch / strides.row > kMostRows / batch) return "its batches are too far apart";
    return nullptr;
  }
};

// How the backward divides a head, and what lies between its kernels: parts of the workspace, one
// after the other, each at a multiple of 16 bytes. P: attention_forward_problem, or the backward's
// params.
struct attention_backward_layout {
  static constexpr int64_t kBoundsBytes = 16;  // of attention_key_bounds
  static constexpr int64_t kKeysOfBounds = 128;
  static constexpr int64_t kLeastKeys = 32;  // of a tile, of all kernels

  bool packed;
  // Whether the kernel of the products adds dq up in global memory; else one of its own computes
  // dq.
  bool adds_dq;
  int64_t width;  // D and Dv with zeros: 64, 128 or 256
  int64_t rows;   // of a block of queries
  int64_t row_blocks, bounds_of_head;
  // In bytes from the start of the workspace; dq, dq_factors and bounds are nothing unless dq is
  // added up.
  int64_t dq;                  // [batch, heads, row blocks] of `rows` × `width` int32
  int64_t records;             // [batch, heads, row blocks] of attention_row_block
  int64_t dq_factors;          // [batch, heads, row blocks, rows] of float
  int64_t bounds;              // [batch, key heads, bounds of head] of attention_key_bounds
  int64_t q_starts, k_starts;  // [sequences + 3] of int, where packed
  int64_t bytes;               // of all

  template <class P>
  constexpr attention_backward_layout(const P& p, kittens::host::kernel_kind kind)
      : attention_backward_layout(p, kind == kittens::host::kernel_kind::generic || adds(p)) {}

  template <class P>
  constexpr attention_backward_layout(const P& p, bool adds_dq)
      : packed(p.packed),
        adds_dq(adds_dq),
        width(width_of(p)),
        rows(width == 64 ? 128 : 64),
        row_blocks(blocks(p, p.rows, rows)),
        bounds_of_head(blocks(p, p.keys, kKeysOfBounds)) {
    const int64_t padded_rows = p.batch * p.heads * row_blocks * rows;
    const int64_t added_rows = adds_dq ? padded_rows : 0;
    const int64_t all_bounds = adds_dq ? p.batch * p.key_heads * bounds_of_head * kBoundsBytes : 0;
    const int64_t starts_bytes = packed ? (p.sequences + 3 + 3) / 4 * 16 : 0;
    dq = 0;
    records = dq + added_rows * width * 4;
    dq_factors = records + padded_rows * 8;
    bounds = dq_factors + added_rows * 4;
    q_starts = bounds + all_bounds;
    k_starts = q_starts + starts_bytes;
    bytes = k_starts + starts_bytes;
  }

  // Whether it is faster to add dq up. A kernel of its own computes s and dp once more, for each
  // key that a row sees; what it saves, above all zeros, bounds and sums, is the same for each row,
  // and for bounds the less the more heads share a key head. (benchmarks/attention.md. With a
  // softcap there are no such kernels up to 128 columns.)
  template <class P>
  static constexpr bool adds(const P& p) {
    const int64_t width = width_of(p), shares = p.heads / p.key_heads;
    if (width > 128 || p.softcap > 0) return width <= 128;
    const int64_t most_keys = width == 64 ? 384 : 640;
    return keys_seen(p) > most_keys * (2 * shares + 1) / (3 * shares);
  }
  // How many keys a row sees, about: the mean of the first, the middle and the last row of a
  // sequence, by Simpson's rule.
  template <class P>
  static constexpr int64_t keys_seen(const P& p) {
    const int64_t sequences = p.packed ? std::max<int64_t>(1, p.sequences) : 1;
    const int64_t rows = p.rows / sequences, keys = p.keys / sequences;
    const int64_t left = std::min(p.left, p.keys), right = std::min(p.right, p.rows);
    const auto seen = [&](int64_t row) {
      const int64_t diagonal = row + keys - rows;
      const int64_t first = std::max<int64_t>(0, diagonal - left);
      return std::max<int64_t>(0, std::min(keys, diagonal + right + 1) - first);
    };
    return (seen(0) + 4 * seen(rows / 2) + seen(rows - 1)) / 6;
  }
  template <class P>
  static constexpr int64_t width_of(const P& p) {
    return padded(std::max(p.head_dim, p.value_dim));
  }
  // The widths that there are kernels for; others take the next one, and loads fill up with zeros.
  static constexpr int64_t padded(int64_t width) {
    return width <= 64 ? 64 : width <= 128 ? 128 : 256;
  }
  // Of a head, of `each` of its rows or keys. (Of packed sequences, the numbers of blocks:
  // attention_sequences.)
  template <class P>
  static constexpr int64_t blocks(const P& p, int64_t length, int64_t each) {
    return p.packed ? length / each + p.sequences + 2 : (length + each - 1) / each;
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
  void* dq;              // as q, of its own strides; or null: not wanted
  void* dk;              // as k, the same
  void* dv;              // as v, the same
  float* dsinks;         // [heads]; or null: not wanted
  std::byte* workspace;  // of attention_backward_layout
  bool packed;           // and as the forward's, if so:
  const void *cu_seqlens_q, *cu_seqlens_k;
  bool int64_seqlens_q, int64_seqlens_k;
  int64_t sequences;
  const void *seqused_k, *leftpad_k;
  bool int64_seqused_k, int64_leftpad_k;
  int* tile_counter;  // as the forward's
  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;
  attention_strides q_strides, k_strides, v_strides, o_strides, do_strides;
  attention_strides dq_strides, dk_strides, dv_strides;
  float scale, softcap;
  int64_t left, right;
  dtype type;
};

inline constexpr kittens::host::kernel_entry<attention_forward_params> kAttentionForward{
    "attention_forward"};
inline constexpr kittens::host::kernel_entry<attention_backward_params> kAttentionBackward{
    "attention_backward"};

}  // namespace thunderkittens
