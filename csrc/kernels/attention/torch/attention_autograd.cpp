// attention above its backends: autograd and autocast.
//
// A call that a kernel serves is one node of the graph, whose backward is `attention_backward`.
// Every other is computed by ATen ops, which differentiate themselves.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "binding/autograd.h"
#include "binding/by_hand.h"
#include "binding/by_hand.h"
#include "kernels/attention/torch/attention_call.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using optional_tensor = std::optional<Tensor>;
using two_tensors = std::tuple<Tensor, Tensor>;
using four_tensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;
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
  static const auto op =
      find_op("thunderkittens::attention_backward", with_backward<attention_backward>);
  return op;
}

template <class Op, class Call>
auto call_op(const Op& op, const Call& c) {
  return unpack(c, [&](const auto&... arguments) { return op.call(arguments...); });
}

// The short forms.
template <auto& Op>
auto plain(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
           std::optional<double> scale) {
  return call_op(Op(), attention_call{.q = q, .k = k, .v = v, .causal = causal, .scale = scale});
}

// To the backends, with nothing to record.
template <class Op, class Call>
auto below_autograd(const Op& op, c10::DispatchKeySet keys, const Call& c) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return unpack(c, [&](const auto&... arguments) {
    return op.redispatch(keys & c10::after_autograd_keyset, arguments...);
  });
}

// ---- Autograd -----------------------------------------------------------------------------------

void save(AutogradContext* ctx, const attention_call& c, const Tensor& o, const Tensor& lse) {
  const auto or_undefined = [](const optional_tensor& t) { return t.value_or(Tensor()); };
  ctx->save_for_backward({c.q, c.k, c.v, o, lse, or_undefined(c.sinks),
                          or_undefined(c.cu_seqlens_q), or_undefined(c.cu_seqlens_k)});
  auto& data = ctx->saved_data;
  const auto keep = [&](const char* name, const auto& number) {
    if (number) data[name] = *number;
  };
  data["causal"] = c.causal;
  keep("scale", c.scale);
  keep("window_left", c.window_left);
  keep("window_right", c.window_right);
  if (c.softcap > 0) data["softcap"] = c.softcap;
  keep("max_seqlen_q", c.max_seqlen_q);
  keep("max_seqlen_k", c.max_seqlen_k);
}

// What was saved, without the gradients.
attention_backward_call saved(AutogradContext* ctx) {
  const variable_list tensors = ctx->get_saved_variables();
  const auto given = [&](size_t i) {
    return tensors[i].defined() ? optional_tensor(tensors[i]) : std::nullopt;
  };
  auto& data = ctx->saved_data;  // None where nothing was kept
  const auto integer = [&](const char* name) { return data[name].toOptional<int64_t>(); };
  const auto size = [&](const char* name) { return data[name].toOptional<c10::SymInt>(); };
  const attention_call c{.q = tensors[0],
                         .k = tensors[1],
                         .v = tensors[2],
                         .causal = data["causal"].toBool(),
                         .scale = data["scale"].toOptional<double>(),
                         .window_left = integer("window_left"),
                         .window_right = integer("window_right"),
                         .softcap = data["softcap"].toOptional<double>().value_or(0),
                         .sinks = given(5),
                         .cu_seqlens_q = given(6),
                         .cu_seqlens_k = given(7),
                         .max_seqlen_q = size("max_seqlen_q"),
                         .max_seqlen_k = size("max_seqlen_k")};
  return {.forward = c, .o = tensors[3], .lse = tensors[4]};
}

// Returns o, and with Lse also lse. (Each output costs the caller half a microsecond.) What may
// need a gradient is passed by itself too, for torch to see it.
template <bool Lse>
struct differentiable_attention : torch::autograd::Function<differentiable_attention<Lse>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& /*q*/, const Tensor& /*k*/,
                               const Tensor& /*v*/, const optional_tensor& /*sinks*/,
                               const attention_call& c) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [o, lse] = call_op(forward_op(), c);
    save(ctx, c, o, lse);
    ctx->set_materialize_grads(false);
    if constexpr (!Lse) return {o};
    return {o, lse};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Tensor dout = gradients[0], dlse = Lse ? gradients[1] : Tensor();
    if (!dout.defined() && !dlse.defined()) return variable_list(5);
    attention_backward_call b = saved(ctx);
    b.dout = dout.defined() ? dout : at::zeros_symint(b.o.sym_sizes(), b.o.options());
    if (dlse.defined()) b.dlse = dlse;
    b.needs = {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2),
               b.forward.sinks && ctx->needs_input_grad(3)};
    auto [dq, dk, dv, dsinks] = call_op(backward_op(), b);
    const auto if_needed = [&](size_t i, const Tensor& t) { return b.needs[i] ? t : Tensor(); };
    return {if_needed(0, dq), if_needed(1, dk), if_needed(2, dv), if_needed(3, dsinks), Tensor()};
  }
};

template <bool Lse>
variable_list recorded(const attention_call& c) {
  return differentiable_attention<Lse>::apply(c.q, c.k, c.v, c.sinks, c);
}

// Whether to record the call; raises what no path can differentiate.
bool records(const attention_call& c) {
  check_dense_call(c);
  refuse_forward_mode("attention", c.q, c.k, c.v, c.sinks);
  return records_gradient(c.q, c.k, c.v, c.sinks);
}

two_tensors recorded_by_aten(const attention_call& c, bool wants_lse) {
  const auto [o, lse] = attention_by_aten(c, wants_lse);
  differentiate_without_autocast({o, lse}, {c.q, c.k, c.v, c.sinks.value_or(Tensor())});
  return {o, lse};
}

Tensor attention_autograd(c10::DispatchKeySet keys, const attention_call& c) {
  if (!records(c)) return below_autograd(attention_op(), keys, c);
  check_call(c);
  if (!is_served_by_kernel(c)) return std::get<0>(recorded_by_aten(c, /*wants_lse=*/false));
  return recorded</*Lse=*/false>(c)[0];
}

two_tensors attention_forward_autograd(c10::DispatchKeySet keys, const attention_call& c) {
  if (!records(c)) return below_autograd(forward_op(), keys, c);
  check_call(c);
  if (!is_served_by_kernel(c)) return recorded_by_aten(c, /*wants_lse=*/true);
  const variable_list outputs = recorded</*Lse=*/true>(c);
  return {outputs[0], outputs[1]};
}

four_tensors attention_backward_autograd(c10::DispatchKeySet keys,
                                         const attention_backward_call& b) {
  check_dense_backward(b);
  const attention_call& c = b.forward;
  const bool recorded = records_gradient(b.dout, b.dlse, c.q, c.k, c.v, c.sinks);
  return unpack(b, [&](const auto&... arguments) {
    return once_differentiable("attention", backward_op(), keys, recorded, arguments...);
  });
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

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  const std::string inputs = "(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> ";
  define_short_form(m, "attention.plain", inputs + "Tensor", plain<attention_op>);
  define_short_form(m, "attention_forward.plain", inputs + "(Tensor o, Tensor lse)",
                    plain<forward_op>);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("attention", with_call<attention_autograd, c10::DispatchKeySet>);
  m.impl("attention_forward", with_call<attention_forward_autograd, c10::DispatchKeySet>);
  m.impl("attention_backward", with_backward<attention_backward_autograd, c10::DispatchKeySet>);
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
