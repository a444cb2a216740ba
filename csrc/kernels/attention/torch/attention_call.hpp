// One call of attention, and what the .cpp files of the op share. Torch, unlike attention.h.
#pragma once

#include <string>

#include "binding/tensors.h"
#include "thunderkittens/kernels/attention.h"

namespace thunderkittens {

// What a call was given; packed when cu_seqlens_q is there.
struct attention_call {
  Tensor q, k, v;
  bool causal;
  std::optional<double> scale;
  std::optional<int64_t> window_left, window_right;
  double softcap = 0;
  optional_tensor seqused_k, leftpad_k;  // [B], of calls that are not packed
  optional_tensor sinks, cu_seqlens_q, cu_seqlens_k;
  std::optional<SymInt> max_seqlen_q, max_seqlen_k;
  bool wants_lse = false;  // beside o
  Tensor qkv;              // that q, k and v are parts of, if it was given

  bool bounds_keys() const { return seqused_k || leftpad_k; }
  // Whether it is softmax(scale · q kᵀ) v, causal or not, and nothing more.
  bool is_plain() const {
    return !cu_seqlens_q && !bounds_keys() && !sinks && softcap == 0 && !window_left &&
           !window_right;
  }
};

// What a call of the backward was given.
struct attention_backward_call {
  attention_call forward;
  Tensor o, lse, dout;
  optional_tensor dlse;
  std::array<bool, 4> needs;  // dq, dk, dv, dsinks
  tensor_array<4> into = {};  // where dq, dk, dv go, for all that is needed; undefined: new ones
};

// What the call asks for, but for strides, which follow from what the kernel reads. Symbolic sizes
// count as none.
attention_forward_problem problem_of(const attention_call& c);

// dq, dk, dv and dsinks, contiguous or `into` what was given, by kernels or ATen, from o and lse,
// whatever computed those; undefined is what is not needed.
tensor_array<4> attention_gradients(attention_backward_call b);

// Tells `explain` what will compute the gradients of a call's forward on that device.
void note_backward(const device& on, const attention_call& c);

}  // namespace thunderkittens
