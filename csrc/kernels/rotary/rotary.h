// rotary: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/rotary.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/rotary.h"

namespace thunderkittens {

struct rotary_operand {
  const void* in;  // [batch, tokens, heads, width] of `type`
  void* out;       // the same shape and type; `in` itself in place
  rotary_strides in_strides, out_strides;
  int heads;  // 0: there is no such operand, and no pointer is read
};

struct rotary_params {
  rotary_operand q, k;
  const void* cos;         // [table_rows, rotated / 2] of `table_type`, rows `cos_stride` apart
  const void* sin;         // the same, rows `sin_stride` apart
  const void* offsets;     // [batch], packed [sequences], int32 or int64; null: zeros
  const void* cu_seqlens;  // [sequences + 1], int32 or int64; null: not packed
  int64_t cos_stride, sin_stride, table_rows;
  int64_t offset, sequences;
  int batch, tokens;
  int width, rotated;
  bool int64_offsets, int64_seqlens;
  bool interleaved;
  bool conjugate;
  bool in_place;
  dtype type, table_type;
};

inline constexpr kittens::host::kernel_entry<rotary_params> kRotary{"rotary"};

}  // namespace thunderkittens
