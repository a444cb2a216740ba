// What the ATen forward and backward share: which keys each query row of a call sees, and how its
// heads are laid out for products. Torch, unlike attention.h.
#pragma once

#include <vector>

#include "kernels/attention/torch/attention_call.hpp"

namespace thunderkittens {

// A call as its products are computed: not packed, and with zeros where no sequence has a row or a
// key, for what lies there may be NaN. Built on the device: nothing is read back.
struct masked_call {
  attention_call call;
  optional_tensor seen;  // bool [Sq, Sk], or [B, Sq, Sk]; none when every row sees every key
  Tensor stray_rows;     // of a packed call: bool [Tq, 1, 1], those that belong to no sequence

  explicit masked_call(attention_call c);
};

// Where a sequence of a packed call lies.
struct packed_sequence {
  int64_t row, rows, key, keys;

  // The call on it alone, not packed.
  attention_call of(const attention_call& c) const;
};

// All sequences in order, between two without keys: the rows before and after all of them. Reads
// cu_seqlens, which must be `readable`.
std::vector<packed_sequence> packed_sequences(const attention_call& c);

// Whether cu_seqlens hold numbers that the CPU can read.
bool readable_sequences(const attention_call& c);

// The rows of all query heads that share a key head are stacked, so that one product serves them:
// [B · Hk, group · Sq, …].
struct head_layout {
  SymInt batch, key_heads, group, rows, keys;

  explicit head_layout(const attention_call& c);

  SymInt count() const { return batch * key_heads; }
  Tensor queries(const Tensor& t) const {  // of [B, Sq, Hq, N]
    return t.transpose(1, 2).reshape_symint({count(), group * rows, t.sym_size(3)});
  }
  Tensor sums(const Tensor& t) const {  // of [B, Hq, Sq]
    return t.reshape_symint({count(), group * rows, 1});
  }
  Tensor key_rows(const Tensor& t) const {  // of [B, Sk, Hk, N]
    return t.transpose(1, 2).reshape_symint({count(), keys, t.sym_size(3)});
  }
  Tensor as_queries(const Tensor& t) const {  // the inverses
    return t.reshape_symint({batch, key_heads * group, rows, t.sym_size(2)}).transpose(1, 2);
  }
  Tensor as_key_rows(const Tensor& t) const {
    return t.reshape_symint({batch, key_heads, keys, t.sym_size(2)}).transpose(1, 2);
  }
  Tensor by_group(const Tensor& t) const {  // [B, Hk, group, Sq, N]
    return t.reshape_symint({batch, key_heads, group, rows, t.sym_size(2)});
  }
};

}  // namespace thunderkittens
