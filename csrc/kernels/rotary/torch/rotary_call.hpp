// One call of rotary, and what the .cpp files of the op share. Torch, unlike rotary.h.
#pragma once

#include "binding/tensors.h"

namespace thunderkittens {

// What a call was given, which outlives it; packed when cu_seqlens is there.
struct rotary_call {
  const Tensor &q, &k, &cos, &sin;
  const SymInt& offset;
  const optional_tensor& offsets;
  const bool &interleaved, &conjugate;
  const optional_tensor& cu_seqlens;
  const std::optional<SymInt>& max_seqlen;
};

// Turns x, q or k of the call; `out` may be x.
void turn_by_aten(const rotary_call& c, const Tensor& x, const Tensor& out);

}  // namespace thunderkittens
