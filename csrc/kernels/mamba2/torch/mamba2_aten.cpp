// mamba2 in ATen ops: linear attention's, of dt' x.
#include <ATen/ATen.h>

#include <limits>

#include "kernels/linear_attention/torch/linear_attention_call.hpp"
#include "kernels/linear_attention/torch/linear_attention_packing.hpp"
#include "kernels/mamba2/torch/mamba2_call.hpp"

namespace thunderkittens {
namespace {

at::ScalarType computing_dtype(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// In the dtype that is computed in. A state [B, H, P, N] is a transposed one of linear attention.
struct converted_call {
  Tensor A;
  Tensor raw;            // dt + dt_bias
  Tensor before, steps;  // of the clamp, and dt'
  Tensor x, B, C, D;
  optional_tensor initial_state, cu_seqlens;

  linear_attention_call scan() const {
    return {C, B, x * steps.unsqueeze(-1), steps * A, 1.0, initial_state, cu_seqlens};
  }
};

optional_tensor transposed(const optional_tensor& state, at::ScalarType type) {
  return state ? std::optional(state->to(type).transpose(-1, -2)) : std::nullopt;
}

// Zeros for tokens of no sequence, which may hold anything, of [B, S, …].
Tensor of_sequences(const Tensor& t, const mamba2_call& c) {
  if (!c.cu_seqlens) return t;
  Tensor found = find_tokens_of_sequences(*c.cu_seqlens, c.x.size(1)).unsqueeze(-1);
  if (t.dim() == 4) found = found.unsqueeze(-1);
  return at::where(found, t, at::zeros({}, t.options()));
}

converted_call convert(const mamba2_call& c) {
  const at::ScalarType type = computing_dtype(c.x);
  converted_call r{
      .A = c.A.to(type),
      .raw = of_sequences(c.dt.to(type), c),
      .x = of_sequences(c.x.to(type), c),
      .B = c.B.to(type),
      .C = c.C.to(type),
      .initial_state = transposed(c.initial_state, type),
      .cu_seqlens = c.cu_seqlens,
  };
  if (c.dt_bias) r.raw = r.raw + c.dt_bias->to(type);
  r.before = c.dt_softplus ? at::softplus(r.raw) : r.raw;
  r.steps =
      at::clamp(r.before, c.dt_min, c.dt_max.value_or(std::numeric_limits<double>::infinity()));
  if (c.D) r.D = c.D->to(type);
  return r;
}

// Fills in ddt, dA and ddt_bias from the gradients of the two uses of dt': as a weight, and in
// dt' A, the logarithm of the decay. Of a token of no sequence both are 0, and dt' is finite.
void add_gradients_of_gates(mamba2_gradients& results, const mamba2_backward_call& b,
                            const converted_call& r, const Tensor& d_weights,
                            const Tensor& d_log_decay) {
  const mamba2_call& c = b.forward;
  if (b.needs[2]) results[2] = (d_log_decay * r.steps).sum(at::IntArrayRef({0, 1}));
  if (!b.needs[1] && !b.needs[6]) return;
  // Beyond its limits dt' is constant.
  Tensor passes = r.before.ge(c.dt_min);
  if (c.dt_max) passes = passes.logical_and_(r.before.le(*c.dt_max));
  Tensor d_raw = at::where(passes, d_weights + d_log_decay * r.A, 0.0);
  if (c.dt_softplus) d_raw = at::where(r.raw > 20, d_raw, d_raw * at::sigmoid(r.raw));
  if (b.needs[1]) results[1] = d_raw.to(c.dt.scalar_type()).contiguous();
  if (b.needs[6] && c.dt_bias)
    results[6] = d_raw.sum(at::IntArrayRef({0, 1})).to(c.dt_bias->scalar_type());
}

}  // namespace

mamba2_results mamba2_by_aten(const mamba2_call& c) {
  const converted_call r = convert(c);
  auto [y, state] = linear_attention_by_aten(r.scan());
  if (r.D.defined()) y = y + r.x * r.D.unsqueeze(-1);
  return {y.to(c.x.scalar_type()).contiguous(), state.transpose(-1, -2).contiguous()};
}

mamba2_gradients mamba2_backward_by_aten(const mamba2_backward_call& b) {
  const mamba2_call& c = b.forward;
  const converted_call r = convert(c);
  const Tensor dy = of_sequences(b.dy.to(r.x.scalar_type()), c);
  const bool gates = b.needs_gates();
  const auto [dC, dB, dv, d_log_decay, d_initial] = linear_attention_backward_by_aten(
      {r.scan(),
       dy,
       transposed(b.dfinal_state, r.x.scalar_type()),
       {b.needs[4], b.needs[3], b.needs[0] || gates, gates, b.needs[7]}});
  mamba2_gradients results;
  if (b.needs[0]) {
    Tensor dx = dv * r.steps.unsqueeze(-1);
    if (r.D.defined()) dx = dx + dy * r.D.unsqueeze(-1);
    results[0] = dx.to(c.x.scalar_type());
  }
  if (b.needs[3]) results[3] = dB.to(c.B.scalar_type());
  if (b.needs[4]) results[4] = dC.to(c.C.scalar_type());
  if (b.needs[5] && c.D)
    results[5] = (dy * r.x).sum(at::IntArrayRef({0, 1, 3})).to(c.D->scalar_type());
  if (gates) add_gradients_of_gates(results, b, r, (dv * r.x).sum(-1), d_log_decay);
  if (b.needs[7] && c.initial_state) results[7] = d_initial.transpose(-1, -2).contiguous();
  return results;
}

}  // namespace thunderkittens
