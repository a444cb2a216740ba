// attention above its backends: autograd and autocast.
//
// A call that a kernel serves is one node of the graph, whose backward is `attention_backward`.
// Every other is computed by ATen ops, which differentiate themselves.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "binding/autograd.h"
#include "binding/op.h"
#include "kernels/attention/attention_call.hpp"
#include "kernels/attention/attention_reference.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using optional_tensor = std::optional<Tensor>;
using two_tensors = std::tuple<Tensor, Tensor>;
using three_tensors = std::tuple<Tensor, Tensor, Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const auto& attention_op() {
  static const auto op = find_op("thunderkittens::attention", with_call<attention>);
  return op;
}
const auto& forward_op() {
  static const auto op = find_op("thunderkittens::attention_forward", with_call<attention_forward>);
  return op;
}
const auto& backward_op() {
  static const auto op = find_op("thunderkittens::attention_backward", attention_backward);
  return op;
}

template <class Op>
auto call_op(const Op& op, const attention_call& c) {
  return unpack(c, [&](const auto&... arguments) { return op.call(arguments...); });
}

// To the backends, with nothing to record.
template <class Op>
auto below_autograd(const Op& op, c10::DispatchKeySet keys, const attention_call& c) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return unpack(c, [&](const auto&... arguments) {
    return op.redispatch(keys & c10::after_autograd_keyset, arguments...);
  });
}

// ---- Autograd -----------------------------------------------------------------------------------

// Returns o, and with Lse also lse. (Each output costs the caller half a microsecond.)
template <bool Lse>
struct differentiable_attention : torch::autograd::Function<differentiable_attention<Lse>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k,
                               const Tensor& v, bool causal, std::optional<double> scale) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [o, lse] = call_op(forward_op(), {q, k, v, causal, scale});
    ctx->save_for_backward({q, k, v, o, lse});
    ctx->set_materialize_grads(false);
    ctx->saved_data["causal"] = causal;
    if (scale) ctx->saved_data["scale"] = *scale;
    if constexpr (!Lse) return {o};
    return {o, lse};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &o = saved[3], &lse = saved[4];
    Tensor dout = gradients[0];
    optional_tensor dlse;
    if (Lse && gradients[1].defined()) dlse = gradients[1];
    if (!dout.defined() && !dlse) return variable_list(5);
    if (!dout.defined()) dout = at::zeros_symint(o.sym_sizes(), o.options());
    const std::array<bool, 3> needs = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                       ctx->needs_input_grad(2)};
    const bool causal = ctx->saved_data["causal"].toBool();
    const auto scale = ctx->saved_data["scale"].toOptional<double>();  // None where none was saved
    auto [dq, dk, dv] = backward_op().call(dout, dlse, q, k, v, o, lse, causal, scale, needs);
    return {needs[0] ? dq : Tensor(), needs[1] ? dk : Tensor(), needs[2] ? dv : Tensor(), Tensor(),
            Tensor()};
  }
};

// Whether to record the call; raises what no path can differentiate.
bool records(const attention_call& c) {
  check_dense_call(c);
  refuse_forward_mode("attention", c.q, c.k, c.v, c.sinks);
  return records_gradient(c.q, c.k, c.v, c.sinks);
}

Tensor attention_autograd(c10::DispatchKeySet keys, const attention_call& c) {
  if (!records(c)) return below_autograd(attention_op(), keys, c);
  check_call(c);
  if (!is_served_by_kernel(c)) return std::get<0>(attention_by_aten(c, /*wants_lse=*/false));
  return differentiable_attention<false>::apply(c.q, c.k, c.v, c.causal, c.scale)[0];
}

two_tensors attention_forward_autograd(c10::DispatchKeySet keys, const attention_call& c) {
  if (!records(c)) return below_autograd(forward_op(), keys, c);
  check_call(c);
  if (!is_served_by_kernel(c)) return attention_by_aten(c, /*wants_lse=*/true);
  const variable_list outputs =
      differentiable_attention<true>::apply(c.q, c.k, c.v, c.causal, c.scale);
  return {outputs[0], outputs[1]};
}

// The gradients of attention, themselves not differentiable: without this a double backward would
// be silently wrong.
struct once_differentiable : torch::autograd::Function<once_differentiable> {
  static variable_list forward(AutogradContext*, const Tensor& dout, const optional_tensor& dlse,
                               const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                               const Tensor& lse, bool causal, std::optional<double> scale,
                               std::array<bool, 3> needs) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [dq, dk, dv] = backward_op().call(dout, dlse, q, k, v, o, lse, causal, scale, needs);
    return {dq, dk, dv};
  }
  static variable_list backward(AutogradContext*, variable_list) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "attention: double backward is not supported");
  }
};

three_tensors attention_backward_autograd(c10::DispatchKeySet keys, const Tensor& dout,
                                          const optional_tensor& dlse, const Tensor& q,
                                          const Tensor& k, const Tensor& v, const Tensor& o,
                                          const Tensor& lse, bool causal,
                                          std::optional<double> scale, std::array<bool, 3> needs) {
  check_dense_backward(dout, dlse, q, k, v, o, lse);
  if (!records_gradient(dout, dlse, q, k, v)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return backward_op().redispatch(keys & c10::after_autograd_keyset, dout, dlse, q, k, v, o, lse,
                                    causal, scale, needs);
  }
  const variable_list gradients =
      once_differentiable::apply(dout, dlse, q, k, v, o, lse, causal, scale, needs);
  return {gradients[0], gradients[1], gradients[2]};
}

// ---- Autocast -----------------------------------------------------------------------------------

// q, k and v take autocast's dtype; so do sinks, except that float32 sinks stay float32, as the
// formula's float32 does.
template <c10::DeviceType Device>
attention_call in_autocast_dtype(const attention_call& c) {
  const at::ScalarType type = at::autocast::get_autocast_dtype(Device);
  const auto cast = [&](const Tensor& t) { return at::autocast::cached_cast(type, t, Device); };
  attention_call cast_call = c;
  cast_call.q = cast(c.q);
  cast_call.k = cast(c.k);
  cast_call.v = cast(c.v);
  if (c.sinks && c.sinks->scalar_type() != at::kFloat) cast_call.sinks = cast(*c.sinks);
  return cast_call;
}

template <c10::DeviceType Device, auto& Op>
auto autocast(const attention_call& c) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(Device)));
  return call_op(Op(), in_autocast_dtype<Device>(c));
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("attention", with_keys_and_call<attention_autograd>);
  m.impl("attention_forward", with_keys_and_call<attention_forward_autograd>);
  m.impl("attention_backward", attention_backward_autograd);
}

TORCH_LIBRARY_IMPL(thunderkittens, AutocastCPU, m) {
  m.impl("attention", with_call<autocast<at::kCPU, attention_op>>);
  m.impl("attention_forward", with_call<autocast<at::kCPU, forward_op>>);
}

TORCH_LIBRARY_IMPL(thunderkittens, AutocastCUDA, m) {
  m.impl("attention", with_call<autocast<at::kCUDA, attention_op>>);
  m.impl("attention_forward", with_call<autocast<at::kCUDA, forward_op>>);
}

}  // namespace
}  // namespace thunderkittens
