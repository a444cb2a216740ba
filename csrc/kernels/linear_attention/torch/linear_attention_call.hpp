// One call of linear attention, and what the .cpp files of the op share. Torch, unlike
// linear_attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace thunderkittens {

// What a call was given.
struct linear_attention_call {
  at::Tensor q, k, v;
  std::optional<at::Tensor> log_decay;
  std::optional<double> scale;
  std::optional<at::Tensor> initial_state;
  // Where packed sequences start and end: q, k, v and log_decay are [T, …] then.
  std::optional<at::Tensor> cu_seqlens;

  double scale_or_usual() const;  // K^−½
  // [sequences, H, K, V].
  at::Tensor empty_state() const;
};

// o and the final state.
using linear_attention_results = std::array<at::Tensor, 2>;
// dq, dk, dv, dlog_decay, dinitial_state; undefined is what is not needed.
using linear_attention_gradients = std::array<at::Tensor, 5>;

// What a call of the backward was given.
struct linear_attention_backward_call {
  linear_attention_call forward;
  at::Tensor dout;
  std::optional<at::Tensor> dfinal_state;
  std::array<bool, 5> needs;
};

// Of packed sequences in one batch, [1, T, …], it reads where they end.
linear_attention_results linear_attention_by_aten(const linear_attention_call& c);
linear_attention_gradients linear_attention_backward_by_aten(
    const linear_attention_backward_call& b);

// Raises unless `cu_seqlens`, if given, has a number more than there are packed sequences, and the
// state, if given, is of as many.
void check_sequences(const char* op, const char* name, const std::optional<at::Tensor>& state,
                     const std::optional<at::Tensor>& cu_seqlens);

// [B, S, H, D] of each head, to [B, S, Hk, D], as dq and dk of the heads that share one are.
at::Tensor add_up_heads(const at::Tensor& of_heads, const at::Tensor& like);

// The gradient of the decays from q · dq and k · dk of each token and head, [B, S, H], and from the
// initial state and its gradient, which may both be undefined:
//
//   dg(t) = ⟨dS(0 − 1), S(0 − 1)⟩ − Σ(i < t) (q(i) · dq(i) − k(i) · dk(i))
//
// For g(t) scales all that leads from before t to after it; what q(i) · dq(i) measures ends at i,
// and what k(i) · dk(i) does begins there. The sum is that over the token's own sequence.
at::Tensor decay_gradient(const at::Tensor& q_dots, const at::Tensor& k_dots,
                          const at::Tensor& initial_state, const at::Tensor& d_initial_state,
                          const std::optional<at::Tensor>& cu_seqlens = std::nullopt);

}  // namespace thunderkittens
