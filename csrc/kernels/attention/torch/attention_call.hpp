// One call of attention, and what the .cpp files of the op share. Torch, unlike attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "thunderkittens/kernels/attention.h"

namespace thunderkittens {

using two_tensors = std::array<at::Tensor, 2>;
using four_tensors = std::array<at::Tensor, 4>;

// What a call was given; packed when cu_seqlens_q is there.
struct attention_call {
  at::Tensor q, k, v;
  bool causal;
  std::optional<double> scale;
  std::optional<int64_t> window_left, window_right;
  double softcap = 0;
  std::optional<at::Tensor> sinks, cu_seqlens_q, cu_seqlens_k;
  std::optional<c10::SymInt> max_seqlen_q, max_seqlen_k;
  std::optional<at::Tensor> seqused_k, leftpad_k;  // [B], of calls that are not packed
  bool wants_lse = false;                          // beside o

  bool bounds_keys() const { return seqused_k || leftpad_k; }
};

// What a call of the backward was given.
struct attention_backward_call {
  attention_call forward;
  at::Tensor o, lse, dout;
  std::optional<at::Tensor> dlse;
  std::array<bool, 4> needs;  // dq, dk, dv, dsinks
};

// What the call asks for, but for strides, which follow from what the kernel reads. Symbolic sizes
// count as none.
attention_forward_problem problem_of(const attention_call& c);

// Of [B, S, H, D], or of packed [T, H, D]; what the stride of a single packed row is, is nothing.
attention_strides strides_of(const at::Tensor& t);

// Float32, as the kernels read them; undefined without.
at::Tensor contiguous_sinks(const attention_call& c);

// The same numbers with the strides that Meta promises, also of dimensions of size 1.
at::Tensor exactly_contiguous(const at::Tensor& t);

}  // namespace thunderkittens
