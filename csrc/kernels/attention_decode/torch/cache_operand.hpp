// A cache of keys and values as the ops take it: whole sequences, or pages and a table. Torch,
// unlike attention_decode.h.
#pragma once

#include <string>

#include "binding/tensors.h"
#include "thunderkittens/kernels/attention_decode.h"

namespace thunderkittens {

struct cache_operand {
  const Tensor &k, &v;  // [B, S, Hk, D], or pages [P, page, Hk, D]
  const Tensor& seqlens;
  const optional_tensor& page_table;

  bool is_fp8() const { return k.scalar_type() == at::kFloat8_e4m3fn; }
  // Of a sequence.
  int64_t capacity() const { return page_table ? page_table->size(1) * k.size(1) : k.size(1); }
  // Without a key to read or write, whatever the lengths are.
  bool is_empty() const { return capacity() == 0 || k.size(0) == 0; }
  decode_cache sizes() const;
};

// Raises unless both caches have one dtype, and scales come with caches of float8_e4m3fn alone.
void check_fp8(const char* op, const Tensor& k, const Tensor& v, const optional_tensor& k_scale,
               const optional_tensor& v_scale);

// As bytes, if it is of float8_e4m3fn: few of ATen's ops that move elements take that.
Tensor as_moved(const Tensor& t);

// As int32, in a row each; what they hold is not looked at. Keep them until the launch has
// returned.
Tensor as_entries(const Tensor& t);

bool has_neighbours(const Tensor& t);  // along the last dimension
// Of a tensor of four dimensions; 0 along one of size 1.
decode_strides decode_strides_of(const Tensor& t);
// Whether all rows start at multiples of `bytes`, and their elements are neighbours.
bool rows_start_at(const Tensor& t, int64_t bytes);

}  // namespace thunderkittens
