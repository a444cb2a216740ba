// What the ops of this family share on torch's side: names, layouts, and the gated functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <string_view>

#include "binding/backend.h"
#include "binding/layout.h"
#include "kernels/activation/activation.h"

namespace thunderkittens::activations {

using at::Tensor;
using two_tensors = std::array<Tensor, 2>;

// Of torch's names "tanh" and "none".
inline activation gelu_named(std::string_view approximate) {
  return approximate == "tanh" ? activation::gelu_tanh : activation::gelu_erf;
}

// Who serves a call on tensors like x.
decision decide_for(const kernel& wanted, const Tensor& x);

// f(x) and dy · f'(x), by ATen, in the dtype of their arguments.
Tensor activate(activation f, const Tensor& x);
Tensor activate_backward(activation f, const Tensor& dy, const Tensor& x);

// The dtype in which ATen computes for x, and what it computed, rounded once to x's dtype.
Tensor upcast(const Tensor& x);
Tensor rounded_like(const Tensor& x, const Tensor& result);

// Tensors of one shape as the kernels read them: one row where all are contiguous, else rows that
// are one distance apart, for which some may have to be copied. Keep it until the launch has
// returned.
template <size_t Count>
struct operands_view {
  std::array<rows_view, Count> tensors;
  int64_t rows, width;

  explicit operands_view(const std::array<Tensor, Count>& given) {
    bool flat = true;
    for (const Tensor& t : given) flat &= t.is_contiguous();
    width = flat ? given[0].numel() : given[0].size(-1);
    rows = given[0].numel() / width;
    for (size_t i = 0; i < Count; ++i) {
      tensors[i] = flat ? rows_view{given[i], width} : as_rows(given[i]);
    }
  }
  const void* data(size_t i) const { return input(tensors[i].tensor); }
  int64_t stride(size_t i) const { return tensors[i].stride; }
};

// Tells `explain` where a kernel will read a copy of `t`.
inline void note_operand(const decision& d, const Tensor& t, const char* name) {
  if (d.on != nullptr && !t.is_contiguous()) note_copy(t, name);
}

// ---- Gated functions: y = f(gate) · up ----------------------------------------------------------

Tensor gated_forward(const kernel& wanted, activation f, const Tensor& gate, const Tensor& up);
// dgate = dy · up · f'(gate) and dup = dy · f(gate), as far as they are needed.
two_tensors gated_backward(const kernel& wanted, activation f, const Tensor& dy, const Tensor& gate,
                           const Tensor& up, std::array<bool, 2> needs);

}  // namespace thunderkittens::activations
