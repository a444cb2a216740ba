// The backward of attention in ATen ops, from its o and lse, which any backend may have computed.
//
//   p = exp(s − lse), masked;  δ = Σ do ∘ o − dlse, per row;  ds = p ∘ (do vᵀ − δ);
//   with softcap: ds ∘ (1 − tanh²);  dq = scale · ds k;  dk = scale · dsᵀ q;  dv = pᵀ do;
//   dsink = −Σ exp(sink − lse) · δ, over the rows of its head.
//
// All in a fixed order; but torch's FlashAttention, where it computes the same, adds dq up in any.
#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/attention/torch/attention_masks.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

// Heads are computed together as long as the matrix of their scores has no more elements than
// this.
constexpr int64_t kMostScores = int64_t{1} << 26;

// ---- Torch's FlashAttention ---------------------------------------------------------------------

bool flash_differentiates(const attention_backward_call& b) {
  constexpr int64_t kGrid = 65535;  // blocks in the second and third direction
  const attention_call& c = b.forward;
  return c.is_plain() && !b.dlse && c.q.size(0) <= kGrid && c.q.size(2) <= kGrid &&
         flash_takes(c.q, c.k, c.v) && c.k.size(1) > 0 && c.q.numel() > 0;
}

// Torch's own lse and masks are these: bottom-right causal, [B, Hq, Sq], natural logarithm; but
// +inf for a row that sees no key. Query heads that share keys are summed up by torch.
tensor_array<4> flash_backward(const attention_backward_call& b) {
  const attention_call& c = b.forward;
  const bool has_dead_rows = c.causal && c.q.size(1) > c.k.size(1);
  const Tensor sums = has_dead_rows ? b.lse.masked_fill(b.lse == -kInfinity, kInfinity) : b.lse;
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      b.dout.transpose(1, 2), c.q.transpose(1, 2), c.k.transpose(1, 2), c.v.transpose(1, 2),
      b.o.transpose(1, 2), sums.contiguous(), /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, c.q.size(1),
      c.k.size(1), /*dropout_p=*/0.0, c.causal, /*philox_seed=*/{}, /*philox_offset=*/{}, c.scale);
  return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), Tensor()};
}

// ---- The formula --------------------------------------------------------------------------------

// What the gradients of some heads of keys are made of, all of the computing dtype.
struct head_inputs {
  Tensor q, dout;     // [N, group · Sq, …]
  Tensor k, v;        // [N, Sk, …]
  Tensor lse, delta;  // [N, group · Sq, 1]
};

// p and scale · ds, [N, group · Sq, Sk]; `hidden` [Sq, Sk] or [N, 1, Sq, Sk], or undefined.
tensor_array<2> weights_and_score_gradients(const attention_call& c, const head_layout& layout,
                                            const Tensor& hidden, const head_inputs& in) {
  const double scale = attention_scale(c.scale, c.q.size(3));
  Tensor scores = at::matmul(in.q, in.k.transpose(1, 2)).mul_(scale);
  Tensor slope;
  if (c.softcap > 0) {
    const Tensor bent = scores.div_(c.softcap).tanh_();
    slope = 1 - bent.square();
    scores = bent * c.softcap;
  }
  const Tensor weights = scores.sub_(in.lse).exp_();
  if (hidden.defined()) {
    weights.view_symint({weights.size(0), layout.group, layout.rows, layout.keys})
        .masked_fill_(hidden, 0);
  }
  const Tensor ds =
      at::matmul(in.dout, in.v.transpose(1, 2)).sub_(in.delta).mul_(weights).mul_(scale);
  if (slope.defined()) ds.mul_(slope);
  return {weights, ds};
}

// The gradients of a call, whose outputs lie as if it were not packed, and so do they. Those of
// sinks are of the computing dtype, what is not needed is undefined.
tensor_array<4> formula_backward(const attention_backward_call& b) {
  const masked_call masked(b.forward);
  const attention_call& c = masked.call;
  const optional_tensor& seen = masked.seen;
  const head_layout layout(c);
  const at::ScalarType type = statistics_dtype(c.q);
  // A row that sees no key passes nothing on, whatever it holds: 0 · NaN must not reach the sums.
  const Tensor blind = seen ? seen->any(-1).logical_not().unsqueeze(-1).unsqueeze(-1)
                            : at::full({}, layout.keys == 0, c.q.options().dtype(at::kBool));
  const auto seeing = [&](const Tensor& t) { return t.masked_fill(blind, 0); };
  const Tensor q = layout.queries(seeing(c.q)), dout = layout.queries(seeing(b.dout)),
               k = layout.key_rows(c.k), v = layout.key_rows(c.v);
  // Without a key and a sink: exp(−inf − inf) = 0.
  const Tensor given_lse = layout.sums(b.lse.to(type)), no_lse = given_lse == -kInfinity;
  const Tensor lse = given_lse.masked_fill(no_lse, kInfinity);
  Tensor delta = (dout.to(type) * layout.queries(b.o)).sum(-1, /*keepdim=*/true);
  if (b.dlse) delta = (delta - layout.sums(*b.dlse)).masked_fill(no_lse, 0);

  const auto room = [](bool needed, const Tensor& like) {
    return needed ? at::empty(like.sizes(), like.options()) : Tensor();
  };
  const Tensor dq = room(b.needs[0], q), dk = room(b.needs[1], k), dv = room(b.needs[2], v);
  const int64_t count = q.size(0), scores = std::max<int64_t>(1, q.size(1) * k.size(1));
  const int64_t step = std::max<int64_t>(1, kMostScores / scores);
  const Tensor hidden = seen ? seen->logical_not() : Tensor();
  const auto hidden_from = [&](int64_t first, int64_t heads) {
    if (!seen || hidden.dim() == 2) return hidden;
    const Tensor head = at::arange(first, first + heads, hidden.options().dtype(at::kLong));
    return hidden.index_select(0, head.floor_divide(c.k.size(2))).unsqueeze(1);
  };
  for (int64_t first = 0; first < count; first += step) {
    const int64_t heads = std::min(step, count - first);
    const auto of = [&](const Tensor& t) { return t.narrow(0, first, heads); };
    const auto upcast = [&](const Tensor& t) { return of(t).to(type); };
    const head_inputs in{upcast(q), upcast(dout), upcast(k), upcast(v), of(lse), of(delta)};
    const auto [weights, ds] =
        weights_and_score_gradients(c, layout, hidden_from(first, heads), in);
    if (b.needs[0]) of(dq).copy_(at::matmul(ds, in.k));
    if (b.needs[1]) of(dk).copy_(at::matmul(ds.transpose(1, 2), in.q));
    if (b.needs[2]) of(dv).copy_(at::matmul(weights.transpose(1, 2), in.dout));
  }

  Tensor dsinks;
  if (b.needs[3] && c.sinks) {
    const auto by_head = [&](const Tensor& t) {
      return t.reshape_symint({layout.batch, c.q.size(2), layout.rows});
    };
    const Tensor share = at::exp(c.sinks->to(type).unsqueeze(-1) - by_head(lse));
    dsinks = (share * by_head(delta)).sum(-1).sum(0).neg();
  }
  return {b.needs[0] ? layout.as_queries(dq) : dq, b.needs[1] ? layout.as_key_rows(dk) : dk,
          b.needs[2] ? layout.as_key_rows(dv) : dv, dsinks};
}

// ---- Packed sequences ---------------------------------------------------------------------------

// Changes the tensors that lie beside the call.
void change_outputs(attention_backward_call& b, const auto& change) {
  for (Tensor* t : {&b.o, &b.lse, &b.dout}) *t = change(*t);
  if (b.dlse) b.dlse = change(*b.dlse);
}

tensor_array<4> backward_by_mask(attention_backward_call b) {
  change_outputs(b, [](const Tensor& t) { return t.unsqueeze(0); });
  tensor_array<4> gradients = formula_backward(b);
  for (size_t i = 0; i < 3; ++i) {
    if (gradients[i].defined()) gradients[i] = gradients[i].squeeze(0);
  }
  return gradients;
}

tensor_array<4> backward_by_sequence(const attention_backward_call& b) {
  const attention_call& c = b.forward;
  const tensor_array<4> sums{at::zeros_like(c.q), at::zeros_like(c.k), at::zeros_like(c.v),
                             c.sinks ? at::zeros_like(*c.sinks, b.lse.scalar_type()) : Tensor()};
  for (const packed_sequence& sequence : packed_sequences(c)) {
    // [T, H, D], but sums [H, T].
    const auto rows = [&](const Tensor& t) {
      return t.narrow(t.dim() == 3 ? 0 : 1, sequence.row, sequence.rows).unsqueeze(0);
    };
    const auto keys = [&](const Tensor& t) {
      return t.narrow(0, sequence.key, sequence.keys).unsqueeze(0);
    };
    attention_backward_call one = b;
    change_outputs(one, rows);
    one.forward = sequence.of(c);
    const auto [dq, dk, dv, dsinks] = formula_backward(one);
    if (dq.defined()) rows(sums[0]).copy_(dq);
    if (dk.defined()) keys(sums[1]).copy_(dk);
    if (dv.defined()) keys(sums[2]).copy_(dv);
    if (dsinks.defined()) sums[3].add_(dsinks);
  }
  return sums;
}

tensor_array<4> by_formula(const attention_backward_call& b) {
  if (!b.forward.cu_seqlens_q) return formula_backward(b);
  return readable_sequences(b.forward) ? backward_by_sequence(b) : backward_by_mask(b);
}

}  // namespace

tensor_array<4> attention_backward_by_aten(const attention_backward_call& b) {
  if (flash_differentiates(b)) return flash_backward(b);
  auto [dq, dk, dv, dsinks] = by_formula(b);
  if (dsinks.defined()) dsinks = dsinks.to(b.forward.sinks->scalar_type());
  return {dq, dk, dv, dsinks};
}

}  // namespace thunderkittens
