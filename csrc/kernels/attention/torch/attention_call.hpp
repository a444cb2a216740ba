// One call of attention, and what the .cpp files of the op share. Torch, unlike attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>
#include <type_traits>

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

// The function that torch registers for `Core`, which takes all the arguments as one; before them
// the dispatch keys, where `Keys` is their type.
template <auto Core, class... Keys>
std::invoke_result_t<decltype(Core), Keys..., const attention_call&> with_call(
    Keys... keys, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
    std::optional<double> scale, std::optional<int64_t> window_left,
    std::optional<int64_t> window_right, double softcap, const std::optional<at::Tensor>& sinks,
    const std::optional<at::Tensor>& cu_seqlens_q, const std::optional<at::Tensor>& cu_seqlens_k,
    std::optional<c10::SymInt> max_seqlen_q, std::optional<c10::SymInt> max_seqlen_k) {
  return Core(keys..., {q, k, v, causal, scale, window_left, window_right, softcap, sinks,
                        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k});
}

// The same of the backward.
template <auto Core, class... Keys>
std::invoke_result_t<decltype(Core), Keys..., const attention_backward_call&> with_backward(
    Keys... keys, const at::Tensor& dout, const std::optional<at::Tensor>& dlse,
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
    const at::Tensor& lse, bool causal, std::optional<double> scale, std::array<bool, 4> needs,
    std::optional<int64_t> window_left, std::optional<int64_t> window_right, double softcap,
    const std::optional<at::Tensor>& sinks, const std::optional<at::Tensor>& cu_seqlens_q,
    const std::optional<at::Tensor>& cu_seqlens_k, std::optional<c10::SymInt> max_seqlen_q,
    std::optional<c10::SymInt> max_seqlen_k) {
  return Core(keys..., {{q, k, v, causal, scale, window_left, window_right, softcap, sinks,
                         cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k},
                        o,
                        lse,
                        dout,
                        dlse,
                        needs});
}

// Calls `function` with the arguments one by one.
template <class Function>
auto unpack(const attention_call& c, const Function& function) {
  return function(c.q, c.k, c.v, c.causal, c.scale, c.window_left, c.window_right, c.softcap,
                  c.sinks, c.cu_seqlens_q, c.cu_seqlens_k, c.max_seqlen_q, c.max_seqlen_k);
}
template <class Function>
auto unpack(const attention_backward_call& b, const Function& function) {
  const attention_call& c = b.forward;
  return function(b.dout, b.dlse, c.q, c.k, c.v, b.o, b.lse, c.causal, c.scale, b.needs,
                  c.window_left, c.window_right, c.softcap, c.sinks, c.cu_seqlens_q, c.cu_seqlens_k,
                  c.max_seqlen_q, c.max_seqlen_k);
}

// Raise unless the call is allowed.
void check_call(const attention_call& c);
void check_backward(const attention_backward_call& b);
// Raise unless the tensors are there and dense: what an Autograd kernel checks first.
void check_dense_call(const attention_call& c);
void check_dense_backward(const attention_backward_call& b);

// Whether a kernel serves the call, so that it runs as one op with attention_backward behind it.
// Of torch.compile's stand-ins, whether one could: the choice is made when the code runs. Warns or
// raises when it is a fallback.
bool is_served_by_kernel(const attention_call& c);

// The ops, below autograd. A gradient that is not needed is empty.
at::Tensor attention(const attention_call& c);
std::tuple<at::Tensor, at::Tensor> attention_forward(const attention_call& c);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const attention_backward_call& b);

}  // namespace thunderkittens
