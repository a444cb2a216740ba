// Which keys each query row of a call sees: what the ATen forward and backward share. Torch, unlike
// attention.h.
#pragma once

#include <vector>

#include "kernels/attention/torch/attention_call.hpp"

namespace thunderkittens {

// Which keys of each batch exist, of a call with seqused_k or leftpad_k.
struct key_ranges {
  at::Tensor end;    // [B]: behind the last one
  at::Tensor exist;  // bool [B, Sk]

  explicit key_ranges(const attention_call& c);
  // k or v with zeros where no key is: what lies there may be NaN.
  at::Tensor known(const at::Tensor& t) const;
};

// Bool [Sq, Sk] of a call that is not packed, [B, 1, 1, Sq, Sk] where key_ranges differ; none when
// every row sees every key.
std::optional<at::Tensor> dense_mask(const attention_call& c);

// The same of a packed call, as one call that is not. Built on the device: nothing is read back.
struct packed_mask {
  at::Tensor seen;                    // bool [Tq, Tk]
  at::Tensor stray_rows, stray_keys;  // bool [Tq, 1, 1], [Tk, 1, 1]: they belong to no sequence

  explicit packed_mask(const attention_call& c);
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

}  // namespace thunderkittens
