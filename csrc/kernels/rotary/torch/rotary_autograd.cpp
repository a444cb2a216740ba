// rotary above its backends: autograd, and the versions of what is written in place.
//
// A rotation is linear, and its gradient is the rotation back: the same op with `conjugate`. So a
// backward is differentiable like the forward, to any order.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include "binding/by_hand.h"
#include "binding/by_hand.h"
#include "kernels/rotary/torch/rotary_call.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using two_tensors = std::tuple<Tensor, Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const auto& rotary_op() {
  static const auto op = find_op("thunderkittens::rotary", with_rotary<rotary>);
  return op;
}
const auto& in_place_op() {
  static const auto op = find_op("thunderkittens::rotary_", with_rotary<rotary_in_place>);
  return op;
}

template <class Op>
auto call_op(const Op& op, const rotary_call& c) {
  return unpack(c, [&](const auto&... arguments) { return op.call(arguments...); });
}

template <class Op>
auto redispatch(const Op& op, c10::DispatchKeySet keys, const rotary_call& c) {
  return unpack(c, [&](const auto&... arguments) { return op.redispatch(keys, arguments...); });
}

two_tensors rotary_plain(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin) {
  const c10::SymInt offset = 0;
  const std::optional<Tensor> none;
  const std::optional<c10::SymInt> max_seqlen;
  return call_op(rotary_op(), {q, k, cos, sin, offset, none, /*interleaved=*/false,
                               /*conjugate=*/false, none, max_seqlen});
}

// What the backward of a call needs: all of it but q and k.
void save(AutogradContext* ctx, const rotary_call& c) {
  const auto or_undefined = [](const std::optional<Tensor>& t) { return t.value_or(Tensor()); };
  ctx->save_for_backward({c.cos, c.sin, or_undefined(c.offsets), or_undefined(c.cu_seqlens)});
  ctx->saved_data["of"] = std::make_tuple(c.offset, c.interleaved, c.conjugate, c.max_seqlen);
  ctx->set_materialize_grads(false);
  save_backend(ctx);
}

// The gradients of q and k from those of the results, of which one may be undefined.
two_tensors turn_back(AutogradContext* ctx, const Tensor& dq, const Tensor& dk) {
  if (!dq.defined() && !dk.defined()) return {};
  const auto or_no_heads = [](const Tensor& t, const Tensor& like) {
    return t.defined() ? t : like.narrow(-2, 0, 0);
  };
  const variable_list tensors = ctx->get_saved_variables();
  const auto given = [&](size_t i) {
    return tensors[i].defined() ? std::optional(tensors[i]) : std::nullopt;
  };
  const auto [offset, interleaved, conjugate, max_seqlen] =
      ctx->saved_data["of"].to<std::tuple<c10::SymInt, bool, bool, std::optional<c10::SymInt>>>();
  const backend_scope scope(saved_backend(ctx));
  const auto [q, k] = call_op(rotary_op(), {.q = or_no_heads(dq, dk),
                                            .k = or_no_heads(dk, dq),
                                            .cos = tensors[0],
                                            .sin = tensors[1],
                                            .offset = offset,
                                            .offsets = given(2),
                                            .interleaved = interleaved,
                                            .conjugate = !conjugate,
                                            .cu_seqlens = given(3),
                                            .max_seqlen = max_seqlen});
  return {dq.defined() ? q : Tensor(), dk.defined() ? k : Tensor()};
}

// What may need a gradient is passed by itself too, for torch to see it.
struct differentiable_rotary : torch::autograd::Function<differentiable_rotary> {
  static variable_list forward(AutogradContext* ctx, const Tensor& /*q*/, const Tensor& /*k*/,
                               const rotary_call& c) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [q, k] = call_op(rotary_op(), c);
    save(ctx, c);
    return {q, k};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto if_needed = [&](size_t i) {
      return ctx->needs_input_grad(i) ? gradients[i] : Tensor();
    };
    const auto [dq, dk] = turn_back(ctx, if_needed(0), if_needed(1));
    return {dq, dk, Tensor()};
  }
};

// Records that x was turned in place. Of q and k each has a node of its own, since a node that
// changes a view (of a fused projection) may change nothing else.
struct turned_in_place : torch::autograd::Function<turned_in_place> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const rotary_call& c) {
    save(ctx, c);
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {std::get<0>(turn_back(ctx, gradients[0], Tensor())), Tensor()};
  }
};

// Whether to record the call; raises what no path can differentiate.
bool records(const rotary_call& c) {
  check_dense_rotary(c);
  refuse_forward_mode("rotary", c.q, c.k, c.cos, c.sin);
  TORCH_CHECK_NOT_IMPLEMENTED(!records_gradient(c.cos, c.sin),
                              "rotary: cos and sin must not require a gradient, got ",
                              c.cos.requires_grad() ? "cos" : "sin", " that does");
  return records_gradient(c.q, c.k);
}

two_tensors rotary_autograd(c10::DispatchKeySet keys, const rotary_call& c) {
  if (!records(c)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return redispatch(rotary_op(), keys & c10::after_autograd_keyset, c);
  }
  const variable_list outputs = differentiable_rotary::apply(c.q, c.k, c);
  return {outputs[0], outputs[1]};
}

void rotary_in_place_autograd(c10::DispatchKeySet keys, const rotary_call& c) {
  const bool recorded = records(c);
  for (const Tensor* x : {&c.q, &c.k}) {  // before anything is written
    torch::autograd::check_inplace(*x, recorded && x->requires_grad());
  }
  {
    const at::AutoDispatchBelowAutograd guard;
    redispatch(in_place_op(), keys & c10::after_autograd_keyset, c);
  }
  for (const Tensor* x : {&c.q, &c.k}) {
    if (recorded && x->requires_grad()) turned_in_place::apply(*x, c);
  }
}

// Also in inference mode, which has no autograd: who saved q or k before has to notice.
void rotary_in_place_counted(c10::DispatchKeySet keys, const rotary_call& c) {
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    redispatch(in_place_op(), keys & c10::after_ADInplaceOrView_keyset, c);
  }
  torch::autograd::increment_version(c.q);
  torch::autograd::increment_version(c.k);
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  define_short_form(m, "rotary.plain",
                    "(Tensor q, Tensor k, Tensor cos, Tensor sin) -> (Tensor, Tensor)",
                    rotary_plain);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("rotary", with_rotary<rotary_autograd, c10::DispatchKeySet>);
  m.impl("rotary_", with_rotary<rotary_in_place_autograd, c10::DispatchKeySet>);
}

TORCH_LIBRARY_IMPL(thunderkittens, ADInplaceOrView, m) {
  m.impl("rotary_", with_rotary<rotary_in_place_counted, c10::DispatchKeySet>);
}

}  // namespace
}  // namespace thunderkittens
