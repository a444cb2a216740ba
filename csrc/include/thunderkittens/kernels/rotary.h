// rotary: what to compute, where, and the launch. Plain C++ without torch.
//
//   (x1, x2) → (x1 cos − x2 sin, x1 sin + x2 cos)   for each pair of the first `rotated` elements
//
// of each head of q and k; the other elements are copied.
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct rotary_params;

inline constexpr int64_t kRotaryMaxWidth = 1024;  // of a head

// Of a tensor [batch, tokens, heads, width] whose last stride is 1, in elements.
struct rotary_strides {
  int64_t batch, token, head;
};

// q or k: a tensor [batch, tokens, heads, width].
struct rotary_heads {
  int64_t heads = 0;  // 0: there is no such tensor, and no pointer is read
  rotary_strides in_strides = {}, out_strides = {};
};

struct rotary_problem {
  int64_t batch, tokens, width;  // packed: batch 1, and all tokens; batch · tokens is below 2³¹
  int64_t rotated;               // even and ≤ width
  rotary_heads q, k;
  int64_t table_rows, cos_stride, sin_stride;         // at least one row; elements between rows
  int64_t offset = 0;                                 // of all positions
  int64_t sequences = 0;                              // packed
  bool int64_offsets = false, int64_seqlens = false;  // else int32
  bool interleaved = false;                           // pairs are neighbours, not one of each half
  bool conjugate = false;                             // turns back: −sin for sin
  bool in_place = false;                              // what is not rotated need not be copied
  dtype type, table_type = type;                      // table_type: `type` or float32
};

struct rotary_tensors {
  const void* q;  // of `type`
  void* q_out;    // the same shape and type; q itself in place
  const void* k;
  void* k_out;
  const void* cos;                   // [table_rows, rotated / 2] of `table_type`
  const void* sin;                   // the same
  const void* offsets = nullptr;     // [batch], packed [sequences], int32 or int64; null: zeros
  const void* cu_seqlens = nullptr;  // [sequences + 1], int32 or int64; null: not packed
};

using rotary_plan = plain_plan<rotary_problem, rotary_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const rotary_problem& problem);

// Throws error where there is no kernel, or none for the device.
KITTENS_EXPORT rotary_plan plan(const rotary_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const rotary_plan& plan, const rotary_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
