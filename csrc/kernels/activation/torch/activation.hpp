// What the ops of this family share on torch's side: names, layouts, and the gated functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "binding/by_hand.h"
#include "binding/by_hand.h"
#include "binding/backend.h"
#include "binding/layout.h"
#include "kernels/activation/activation.h"

namespace thunderkittens::activations {

using two_tensors = std::tuple<at::Tensor, at::Tensor>;

// Of torch's names "tanh" and "none"; raises for any other, in the name of `op`.
activation gelu_named(const char* op, std::string_view approximate);
const char* name_of_gelu(activation f);

// Why the kernels do not take tensors like x; "" when they do.
std::string why_unsupported(const at::Tensor& x);

// f(x) and dy · f'(x), by ATen, in the dtype of their arguments.
at::Tensor activate(activation f, const at::Tensor& x);
at::Tensor activate_backward(activation f, const at::Tensor& dy, const at::Tensor& x);

// The dtype in which ATen computes for x, and what it computed, rounded once to x's dtype.
at::Tensor upcast(const at::Tensor& x);
at::Tensor rounded_like(const at::Tensor& x, const at::Tensor& result);

// Tensors of one shape as the kernels read them: one row where all are contiguous, else rows that
// are one distance apart, for which some may have to be copied. Keep it until the launch has
// returned.
template <size_t Count>
struct operands_view {
  std::array<rows_view, Count> tensors;
  int64_t rows, width;

  explicit operands_view(const std::array<at::Tensor, Count>& given) {
    bool flat = true;
    for (const at::Tensor& t : given) flat &= t.is_contiguous();
    width = flat ? given[0].numel() : given[0].size(-1);
    rows = given[0].numel() / width;
    for (size_t i = 0; i < Count; ++i) {
      tensors[i] = flat ? rows_view{given[i], width} : as_rows(given[i]);
    }
  }
  const void* data(size_t i) const { return tensors[i].tensor.const_data_ptr(); }
  int64_t stride(size_t i) const { return tensors[i].stride; }
};

// Tells `explain` that a kernel will read a copy of `t`.
inline void note_operand(const at::Tensor& t, const char* name) {
  if (!t.is_contiguous()) note_copy(t, name);
}

// ---- Gated functions: y = f(gate) · up ----------------------------------------------------------

inline constexpr arguments kGatedForwardArguments({
    tensor("gate", dtype_rule::floating, "*"),
    tensor("up", dtype_rule::same, "*"),
});
inline constexpr arguments kGatedBackwardArguments({
    tensor("dy", dtype_rule::floating, "*"),
    tensor("gate", dtype_rule::same, "*"),
    tensor("up", dtype_rule::same, "*"),
});

at::Tensor gated_forward(const argument_table& table, const kernel& wanted, activation f,
                         const at::Tensor& gate, const at::Tensor& up);
// dgate = dy · up · f'(gate) and dup = dy · f(gate), as far as they are needed.
two_tensors gated_backward(const argument_table& table, const kernel& wanted, activation f,
                           const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                           std::array<bool, 2> needs);
two_tensors gated_backward_meta(const argument_table& table, const at::Tensor& dy,
                                const at::Tensor& gate, const at::Tensor& up,
                                std::array<bool, 2> needs);

// Op: `forward(gate, up, f)` and `backward(dy, gate, up, needs, f)`, which go through the
// dispatcher.
template <class Op>
struct differentiable_gated : torch::autograd::Function<differentiable_gated<Op>> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& gate,
                            const at::Tensor& up, activation f) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor y = Op::forward(gate, up, f);
    ctx->save_for_backward({gate, up});
    ctx->saved_data["function"] = static_cast<int64_t>(f);
    ctx->set_materialize_grads(false);
    save_backend(ctx);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor& dy = gradients[0];
    if (!dy.defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const auto f = static_cast<activation>(ctx->saved_data["function"].toInt());
    const std::array<bool, 2> needs = {ctx->needs_input_grad(0), ctx->needs_input_grad(1)};
    const backend_scope scope(saved_backend(ctx));
    const auto [dgate, dup] = Op::backward(dy, saved[0], saved[1], needs, f);
    return {needs[0] ? dgate : at::Tensor(), needs[1] ? dup : at::Tensor(), at::Tensor()};
  }
};

}  // namespace thunderkittens::activations
