// rotary: what the host passes to the launcher. No torch, no device code.
//
//   (x1, x2) → (x1 cos − x2 sin, x1 sin + x2 cos)   for each pair of the first `rotated` elements
//
// of each head of q and k; the other elements are copied.
#pragma once

#include <cstdint>

#include "kittens/host/dtype.h"

namespace thunderkittens {

using kittens::host::dtype;

inline constexpr int64_t kRotaryMaxWidth = 1024;  // of a head

// Of a tensor [batch, tokens, heads, width] whose last stride is 1, in elements.
struct rotary_strides {
  int64_t batch, token, head;
};

struct rotary_operand {
  const void* in;  // [batch, tokens, heads, width] of `type`
  void* out;       // the same shape and type; `in` itself in place
  rotary_strides in_strides, out_strides;
  int heads;  // 0: there is no such operand, and no pointer is read
};

// Launcher "rotary".
struct rotary_params {
  rotary_operand q, k;
  const void* cos;         // [table_rows, rotated / 2] of `table_type`, rows `cos_stride` apart
  const void* sin;         // the same, rows `sin_stride` apart
  const void* offsets;     // [batch], packed [sequences], int32 or int64; null: zeros
  const void* cu_seqlens;  // [sequences + 1], int32 or int64; null: not packed
  int64_t cos_stride, sin_stride, table_rows;  // at least one row
  int64_t offset, sequences;
  int batch, tokens;                // packed: 1, and all tokens; their product is below 2³¹
  int width, rotated;               // rotated: even and ≤ width
  bool wide_offsets, wide_seqlens;  // int64
  bool interleaved;                 // pairs are neighbours, not an element of each half
  bool conjugate;                   // turns back: −sin for sin
  bool in_place;                    // what is not rotated need not be copied
  dtype type, table_type;           // table_type: `type` or float32
};

}  // namespace thunderkittens
