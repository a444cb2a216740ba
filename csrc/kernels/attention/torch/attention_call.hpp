// One call of attention, and what the .cpp files of the op share. Torch, unlike attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace thunderkittens {

// What a call was given; packed when cu_seqlens_q is there.
struct attention_call {
  at::Tensor q, k, v;
  bool causal;
  std::optional<double> scale;
  std::optional<int64_t> window_left, window_right;
  double softcap = 0;
  std::optional<at::Tensor> sinks, cu_seqlens_q, cu_seqlens_k;
  std::optional<c10::SymInt> max_seqlen_q, max_seqlen_k;
};

// What a call of the backward was given.
struct attention_backward_call {
  attention_call forward;
  at::Tensor o, lse, dout;
  std::optional<at::Tensor> dlse;
  std::array<bool, 4> needs;  // dq, dk, dv, dsinks
};

}  // namespace thunderkittens
