// Linear attention in ATen ops, by chunks, as the kernel computes it
// (linear_attention_chunkwise.cuh): forward and in reverse, which the gradients are made of.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/linear_attention/torch/linear_attention_call.hpp"
#include "kernels/linear_attention/torch/linear_attention_packing.hpp"

namespace thunderkittens {
namespace {

constexpr int64_t kChunk = 64;

at::ScalarType computing_dtype(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The tensors of a recurrence, in the dtype that is computed in: q, k [B, H, S, K], v [B, H, S, V],
// decay [B, H, S] or undefined, state [B, H, K, V] or undefined; of M packed sequences B is 1 and
// state [M, H, K, V].
struct recurrence {
  Tensor q, k, v, decay, state;
  const std::optional<packing>& packed;
};

// Sums along the last dimension, in double; the same bits on every run. Of a single row on a GPU
// torch's are not: CUB scans it with many blocks, and what a block adds to its own sums is what the
// blocks before it had come to when it looked (decoupled look-back). Of two rows each has a block
// of its own; so a single one is scanned twice.
Tensor running_sums(const Tensor& t) {
  const auto of_rows = [](const Tensor& rows) { return rows.cumsum(-1, at::kDouble); };
  return t.numel() == t.size(-1) ? of_rows(at::stack({t, t})).select(0, 0) : of_rows(t);
}

// [B, S, Hk, D] to [B, H, S, D].
Tensor of_heads(const Tensor& t, int64_t heads) {
  const Tensor by_head = t.to(computing_dtype(t)).transpose(1, 2);
  if (t.size(2) == heads) return by_head;
  return by_head.repeat_interleave(heads / t.size(2), 1);
}

// [B, H, S, …] to chunks, [B, H, N, 64, …], filled up with zeros.
Tensor in_chunks(const Tensor& t) {
  const int64_t length = t.size(2), chunks = (length + kChunk - 1) / kChunk;
  std::vector<int64_t> sizes = t.sizes().vec();
  sizes[2] = chunks * kChunk - length;
  const Tensor whole = sizes[2] == 0 ? t : at::cat({t, t.new_zeros(sizes)}, 2);
  sizes[2] = chunks;
  sizes.insert(sizes.begin() + 3, kChunk);
  return whole.reshape(sizes);
}

// o [B, H, S, V], without the scale, and the state at the end.
std::pair<Tensor, Tensor> run(const recurrence& r, bool reverse) {
  const int64_t length = r.q.size(2), states = r.packed ? r.packed->sequences() : r.q.size(0);
  const Tensor initial =
      r.state.defined() ? r.state
                        : at::zeros({states, r.q.size(1), r.q.size(3), r.v.size(3)}, r.q.options());
  if (length == 0) return {at::zeros_like(r.v), initial};
  const auto cut = [&](const Tensor& t) {
    return r.packed ? r.packed->in_chunks(t) : in_chunks(t);
  };
  const Tensor q = cut(r.q), k = cut(r.k), v = cut(r.v);
  // In double: strong decays add up to numbers whose float32 differences are off by 10⁻⁴.
  const Tensor decay = r.decay.defined()
                           ? cut(r.decay.to(at::kDouble))
                           : at::zeros(q.sizes().slice(0, 4), q.options().dtype(at::kDouble));
  const int64_t chunks = q.size(2);
  const Tensor sums = running_sums(decay);  // [B, H, N, 64]
  const auto factors_of = [&](const Tensor& exponents) {
    return at::exp(exponents.to(q.scalar_type()));
  };
  const Tensor total = sums.narrow(-1, kChunk - 1, 1);
  const Tensor to_end = factors_of(reverse ? sums : total - sums);
  const Tensor since_state = factors_of(reverse ? total - sums : sums);
  const Tensor hidden = at::ones({kChunk, kChunk}, q.options().dtype(at::kBool));
  Tensor exponents = sums.unsqueeze(-1) - sums.unsqueeze(-2);
  if (reverse) exponents = exponents.neg();
  const Tensor weights = factors_of(exponents.masked_fill(
      reverse ? hidden.tril(-1) : hidden.triu(1), -std::numeric_limits<double>::infinity()));
  const Tensor inside = at::matmul(at::matmul(q, k.transpose(-1, -2)) * weights, v);
  const Tensor added = at::matmul((k * to_end.unsqueeze(-1)).transpose(-1, -2), v);
  const Tensor factors = factors_of(total).unsqueeze(-1);  // [B, H, N, 1, 1]
  Tensor state = r.packed ? at::zeros_like(initial.narrow(0, 0, 1)) : initial;
  std::vector<Tensor> list(chunks);
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t chunk = reverse ? chunks - 1 - i : i;
    if (r.packed) state = r.packed->entering(state, initial, chunk, reverse);
    list[chunk] = state;
    state = state * factors.select(2, chunk) + added.select(2, chunk);
  }
  const Tensor before = at::stack(list, 2);
  const Tensor o = inside + at::matmul(q * since_state.unsqueeze(-1), before);
  if (!r.packed) return {o.flatten(2, 3).narrow(2, 0, length), state};
  const auto leaving = [&](const Tensor& t) { return r.packed->leaving(t, reverse); };
  const Tensor last = leaving(before) * leaving(factors) + leaving(added);
  return {r.packed->of_tokens(o), at::where(r.packed->empty(), initial, last)};
}

// [B, H, S, D] to a contiguous [B, S, H, D].
Tensor back(const Tensor& t) { return t.transpose(1, 2).contiguous(); }

recurrence of_call(const linear_attention_call& c, const std::optional<packing>& packed) {
  const int64_t heads = c.v.size(2);
  const at::ScalarType type = computing_dtype(c.q);
  recurrence r{of_heads(c.q, heads), of_heads(c.k, heads), of_heads(c.v, heads), {}, {}, packed};
  if (c.log_decay) r.decay = c.log_decay->to(type).transpose(1, 2);
  if (c.initial_state) r.state = c.initial_state->to(type);
  return r;
}

std::optional<packing> packing_of(const optional_tensor& cu_seqlens, int64_t length) {
  if (!cu_seqlens) return std::nullopt;
  return packing(*cu_seqlens, length, kChunk);
}

// The gradient of the decays from q · dq and k · dk of each token and head, [B, S, H], and from the
// initial state and its gradient, which may both be undefined:
//
//   dg(t) = ⟨dS(0 − 1), S(0 − 1)⟩ − Σ(i < t) (q(i) · dq(i) − k(i) · dk(i))
//
// For g(t) scales all that leads from before t to after it; what q(i) · dq(i) measures ends at i,
// and what k(i) · dk(i) does begins there. The sum is that over the token's own sequence: what
// others hold, NaN too, does not reach it. Tokens of no sequence may hold anything, and get 0.
Tensor decay_gradient(const Tensor& q_dots, const Tensor& k_dots, const Tensor& initial_state,
                      const Tensor& d_initial_state, const std::optional<packing>& packed) {
  const Tensor ends = q_dots - k_dots;
  const Tensor states = initial_state.defined()
                            ? (initial_state * d_initial_state).sum({2, 3}).to(at::kDouble)
                            : Tensor();
  if (!packed) {
    // Along the last dimension: torch scans others of an H200 at a fiftieth of its bandwidth.
    Tensor before = running_sums(ends.transpose(1, 2).contiguous()).transpose(1, 2) - ends;
    if (states.defined()) before = before - states.unsqueeze(1);
    return before.neg_().to(ends.scalar_type()).contiguous();
  }
  // Sums within chunks, of which none has tokens of two sequences, and over those before.
  const Tensor chunks = packed->in_chunks(ends.transpose(1, 2)), sums = running_sums(chunks);
  Tensor carried = packed->sums_before(sums.select(-1, kChunk - 1));
  if (states.defined()) carried = carried - packed->of_chunks(states);
  const Tensor before = sums - chunks + carried.unsqueeze(-1);
  return packed->of_tokens(before.neg().to(ends.scalar_type())).transpose(1, 2).contiguous();
}

}  // namespace

Tensor linear_attention_call::empty_state() const {
  const auto sequences = cu_seqlens ? cu_seqlens->sym_numel() - 1 : v.sym_size(0);
  const auto type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::empty_symint({sequences, v.sym_size(-2), q.sym_size(-1), v.sym_size(-1)},
                          q.options().dtype(type));
}

linear_attention_results linear_attention_by_aten(const linear_attention_call& c) {
  const std::optional<packing> packed = packing_of(c.cu_seqlens, c.v.size(1));
  const auto [o, state] = run(of_call(c, packed), /*reverse=*/false);
  return {back((o * c.scale_or_usual()).to(c.v.scalar_type())), state.contiguous()};
}

Tensor add_up_heads(const Tensor& of_heads, const Tensor& like) {
  if (of_heads.size(2) == like.size(2)) return of_heads.to(like.scalar_type());
  return of_heads
      .view(
          {like.size(0), like.size(1), like.size(2), of_heads.size(2) / like.size(2), like.size(3)})
      .sum(3, /*keepdim=*/false, computing_dtype(like))
      .to(like.scalar_type());
}

linear_attention_gradients linear_attention_backward_by_aten(
    const linear_attention_backward_call& b) {
  const linear_attention_call& c = b.forward;
  const std::optional<packing> packed = packing_of(c.cu_seqlens, c.v.size(1));
  const recurrence r = of_call(c, packed);
  const auto& [q, k, v, decay, state, _] = r;
  const double scale = c.scale_or_usual();
  const Tensor dout = of_heads(b.dout, c.v.size(2)) * scale;
  const Tensor d_state = b.dfinal_state ? b.dfinal_state->to(q.scalar_type()) : Tensor();
  const auto transposed = [](const Tensor& t) { return t.defined() ? t.transpose(-1, -2) : t; };
  linear_attention_gradients results;
  const bool decays = b.needs[3] && c.log_decay;
  const bool needs_state = (b.needs[4] || decays) && c.initial_state;
  Tensor dq, dk, d_initial;
  if (b.needs[0] || decays) {
    dq = run({dout, v, k, decay, transposed(state), packed}, /*reverse=*/false).first;
  }
  if (b.needs[1] || decays || needs_state) {
    Tensor last;
    std::tie(dk, last) = run({v, dout, q, decay, transposed(d_state), packed}, /*reverse=*/true);
    d_initial = last.transpose(-1, -2);
  }
  if (b.needs[0]) results[0] = add_up_heads(back(dq), c.q);
  if (b.needs[1]) results[1] = add_up_heads(back(dk), c.k);
  if (b.needs[2]) {
    const recurrence of_dv{k, q, dout, decay, d_state, packed};
    results[2] = back(run(of_dv, /*reverse=*/true).first).to(c.v.scalar_type());
  }
  if (decays) {
    const auto dots = [](const Tensor& x, const Tensor& y) {
      return (x * y).sum(-1).transpose(1, 2);
    };
    results[3] = decay_gradient(dots(q, dq), dots(k, dk), state, d_initial, packed);
  }
  if (b.needs[4] && c.initial_state) results[4] = d_initial.contiguous();
  return results;
}

}  // namespace thunderkittens
