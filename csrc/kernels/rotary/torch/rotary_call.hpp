// One call of rotary, and what the .cpp files of the op share. Torch, unlike rotary.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>

namespace thunderkittens {

// What a call was given, which outlives it; packed when cu_seqlens is there.
struct rotary_call {
  const at::Tensor &q, &k, &cos, &sin;
  const c10::SymInt& offset;
  const std::optional<at::Tensor>& offsets;
  bool interleaved, conjugate;
  const std::optional<at::Tensor>& cu_seqlens;
  const std::optional<c10::SymInt>& max_seqlen;
};

// The function that torch registers for `Core`, which takes all the arguments as one; before them
// the dispatch keys, where `Keys` is their type.
template <auto Core, class... Keys>
std::invoke_result_t<decltype(Core), Keys..., const rotary_call&> with_rotary(
    Keys... keys, const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
    const at::Tensor& sin, c10::SymInt offset, const std::optional<at::Tensor>& offsets,
    bool interleaved, bool conjugate, const std::optional<at::Tensor>& cu_seqlens,
    std::optional<c10::SymInt> max_seqlen) {
  return Core(keys...,
              {q, k, cos, sin, offset, offsets, interleaved, conjugate, cu_seqlens, max_seqlen});
}

// Calls `function` with the arguments one by one.
template <class Function>
auto unpack(const rotary_call& c, const Function& function) {
  return function(c.q, c.k, c.cos, c.sin, c.offset, c.offsets, c.interleaved, c.conjugate,
                  c.cu_seqlens, c.max_seqlen);
}

// Raises unless the call is allowed; check_dense_rotary: unless the tensors are there and dense.
void check_rotary(const rotary_call& c);
void check_dense_rotary(const rotary_call& c);

// The ops, below autograd.
std::tuple<at::Tensor, at::Tensor> rotary(const rotary_call& c);
void rotary_in_place(const rotary_call& c);

}  // namespace thunderkittens
