// One call of rotary, and what the .cpp files of the op share. Torch, unlike rotary.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace thunderkittens {

// What a call was given, which outlives it; packed when cu_seqlens is there.
struct rotary_call {
  const at::Tensor &q, &k, &cos, &sin;
  const c10::SymInt& offset;
  const std::optional<at::Tensor>& offsets;
  const bool &interleaved, &conjugate;
  const std::optional<at::Tensor>& cu_seqlens;
  const std::optional<c10::SymInt>& max_seqlen;
};

// Turns x, q or k of the call; `out` may be x.
void turn_by_aten(const rotary_call& c, const at::Tensor& x, const at::Tensor& out);

}  // namespace thunderkittens
