// The formula of attention in ATen ops, and its backward.
//
//   s = scale · q kᵀ;  s = softcap · tanh(s / softcap);  masked;  o = softmax(s) v
//
// Query head h reads key head h // (Hq / Hk). The diagonal of row i is i + Sk − Sq. A sink is one
// more logit of each row, without a value. A row with no key gives 0, and lse = its sink (−inf
// without).
#include "kernels/attention/attention_reference.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kittens/host/launchers.h"

namespace thunderkittens {
namespace {

using at::Tensor;
using c10::SymInt;
using optional_tensor = std::optional<Tensor>;
using optional_int = std::optional<int64_t>;
using two_tensors = std::tuple<Tensor, Tensor>;
using three_tensors = std::tuple<Tensor, Tensor, Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_masked(const attention_call& c) { return c.causal || c.window_left || c.window_right; }

// ---- Which keys a row sees ----------------------------------------------------------------------

Tensor positions(const SymInt& count, const Tensor& like) {
  return at::arange(at::Scalar(count), like.options().dtype(at::kLong));
}

// `diagonal` [Sq]: the key position of each row's diagonal; `column` [Sk]. Returns bool [Sq, Sk].
Tensor band(const attention_call& c, const Tensor& diagonal, const Tensor& column) {
  const Tensor distance = column.unsqueeze(0) - diagonal.unsqueeze(1);
  optional_int right = c.window_right;
  if (c.causal) right = 0;
  Tensor seen = at::ones_like(distance, distance.options().dtype(at::kBool));
  if (right) seen = seen & distance.le(*right);
  if (c.window_left) seen = seen & distance.ge(-*c.window_left);
  return seen;
}

optional_tensor dense_mask(const attention_call& c) {
  if (!is_masked(c)) return std::nullopt;
  const SymInt rows = c.q.sym_size(1), columns = c.k.sym_size(1);
  const Tensor diagonal = positions(rows, c.q) + at::Scalar(columns - rows);
  return band(c, diagonal, positions(columns, c.q));
}

// Of each of `count` packed tokens: its sequence (-1 when none), and where that starts and how long
// it is.
struct token_places {
  Tensor sequence, start;

  token_places(const Tensor& cu_seqlens, const SymInt& count)
      : sequence(at::bucketize(positions(count, cu_seqlens), cu_seqlens, false, /*right=*/true) -
                 1) {
    sequence = sequence.masked_fill(sequence >= at::Scalar(cu_seqlens.sym_size(0) - 1), -1);
    start = cu_seqlens.index_select(0, sequence.clamp_min(0));
  }
};

// The length of each token's sequence in another packing.
Tensor lengths(const Tensor& cu_seqlens, const Tensor& sequence) {
  const Tensor first = sequence.clamp_min(0);
  const Tensor next = (first + 1).clamp_max(at::Scalar(cu_seqlens.sym_size(0) - 1));
  return cu_seqlens.index_select(0, next) - cu_seqlens.index_select(0, first);
}

// ---- The formula --------------------------------------------------------------------------------

// q [B, Sq, Hq, D], k [B, Sk, Hk, D], v [B, Sk, Hk, Dv], seen [Sq, Sk] → o [B, Sq, Hq, Dv], lse [B,
// Hq, Sq].
two_tensors formula(const attention_call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                    const optional_tensor& seen) {
  const at::ScalarType type = attention_computing_dtype(q);
  const SymInt batch = q.sym_size(0), rows = q.sym_size(1), heads = q.sym_size(2),
               keys = k.sym_size(1), key_heads = k.sym_size(2), width = q.sym_size(3),
               value_width = v.sym_size(3);
  const SymInt group = TORCH_GUARD_OR_FALSE(key_heads.sym_eq(0)) ? SymInt(1) : heads / key_heads;
  const double scale = attention_scale(c.scale, width.guard_int(__FILE__, __LINE__));

  // The query heads of one key head stand under one another, so that one product serves them.
  const Tensor queries = q.to(type)
                             .reshape_symint({batch, rows, key_heads, group, width})
                             .permute({0, 2, 3, 1, 4})
                             .reshape_symint({batch, key_heads, group * rows, width});
  Tensor scores = at::matmul(queries, k.to(type).permute({0, 2, 3, 1})) * scale;
  if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
  scores = scores.reshape_symint({batch, key_heads, group, rows, keys});
  if (seen) scores = scores.masked_fill(seen->logical_not(), -kInfinity);

  // The sink is one more key without a value; without sinks its logit is −inf, which adds nothing.
  const Tensor sink = c.sinks ? c.sinks->to(type).reshape_symint({key_heads, group, 1, 1})
                              : at::full({}, -kInfinity, scores.options());
  const Tensor logits =
      at::cat({scores, sink.expand_symint({batch, key_heads, group, rows, 1})}, /*dim=*/-1);
  const Tensor row_max = logits.detach().amax(-1, /*keepdim=*/true);
  const Tensor anchor = row_max.masked_fill(row_max == -kInfinity, 0);
  const Tensor weights = at::exp(logits - anchor);
  const Tensor sum = weights.sum(-1, /*keepdim=*/true);
  const Tensor no_key = sum == 0;
  const Tensor divisor = sum.masked_fill(no_key, 1);
  const Tensor probabilities = weights.narrow_symint(-1, 0, keys) / divisor;

  const Tensor o = at::matmul(probabilities.reshape_symint({batch, key_heads, group * rows, keys}),
                              v.to(type).permute({0, 2, 1, 3}))
                       .reshape_symint({batch, heads, rows, value_width})
                       .transpose(1, 2)
                       .to(q.scalar_type());
  const Tensor lse = (at::log(divisor) + anchor).masked_fill(no_key, -kInfinity);
  return {o.contiguous(), lse.reshape_symint({batch, heads, rows})};
}

// ---- Packed sequences ---------------------------------------------------------------------------

// With a mask [total_q, total_k], built on the device: nothing is read back.
two_tensors packed_by_mask(const attention_call& c) {
  const SymInt rows = c.q.sym_size(0), columns = c.k.sym_size(0);
  // The running maximum, as in offsets(): bucketize wants them in order.
  const auto in_order = [](const Tensor& cu_seqlens, const SymInt& total) {
    return std::get<0>(at::cummax(cu_seqlens.to(at::kLong).clamp(0, at::Scalar(total)), 0));
  };
  const Tensor cu_q = in_order(*c.cu_seqlens_q, rows), cu_k = in_order(*c.cu_seqlens_k, columns);
  const token_places query(cu_q, rows), key(cu_k, columns);
  const Tensor diagonal = positions(rows, c.q) - query.start + lengths(cu_k, query.sequence) -
                          lengths(cu_q, query.sequence);
  const Tensor same =
      (query.sequence.unsqueeze(1) == key.sequence.unsqueeze(0)) & (key.sequence >= 0);
  const Tensor seen = band(c, diagonal, positions(columns, c.q) - key.start) & same;
  // A token of no sequence may hold anything: 0 · NaN must not reach the product.
  const Tensor v = c.v.masked_fill((key.sequence < 0).unsqueeze(-1).unsqueeze(-1), 0);
  auto [o, lse] = formula(c, c.q.unsqueeze(0), c.k.unsqueeze(0), v.unsqueeze(0), seen);
  return {o.squeeze(0), lse.squeeze(0)};
}

std::vector<int64_t> offsets(const Tensor& cu_seqlens, int64_t total) {
  const Tensor values = cu_seqlens.to(at::kLong).contiguous();
  std::vector<int64_t> list(values.const_data_ptr<int64_t>(),
                            values.const_data_ptr<int64_t>() + values.numel());
  int64_t last = 0;
  for (int64_t& offset : list) last = offset = std::min(std::max(offset, last), total);
  return list;
}

// One sequence at a time; reads cu_seqlens, which must hold data on the CPU.
two_tensors packed_by_sequence(const attention_call& c) {
  const std::vector<int64_t> query = offsets(*c.cu_seqlens_q, c.q.size(0));
  const std::vector<int64_t> key = offsets(*c.cu_seqlens_k, c.k.size(0));
  std::vector<Tensor> outputs, sums;
  const auto append = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    attention_call one = c;
    one.q = c.q.narrow(0, row, rows).unsqueeze(0);
    one.k = c.k.narrow(0, column, columns).unsqueeze(0);
    one.v = c.v.narrow(0, column, columns).unsqueeze(0);
    auto [o, lse] = formula(c, one.q, one.k, one.v, dense_mask(one));
    outputs.push_back(o.squeeze(0));
    sums.push_back(lse.squeeze(0));
  };
  append(0, query.front(), 0, 0);  // tokens before and after all sequences see no key
  for (size_t i = 0; i + 1 < query.size(); ++i) {
    append(query[i], query[i + 1] - query[i], key[i], key[i + 1] - key[i]);
  }
  append(query.back(), c.q.size(0) - query.back(), 0, 0);
  return {at::cat(outputs), at::cat(sums, /*dim=*/-1)};
}

// ---- Torch's fused attention --------------------------------------------------------------------

// The case that torch's own fused attention computes: [B, H, S, D], causal aligned to the top left.
// Its kernels take the maximum before they scale, so a scale below 0 overflows there (NaN with
// torch 2.11 on an H200).
bool plain(const attention_call& c) {
  if (c.cu_seqlens_q || c.sinks || c.softcap > 0 || c.window_left || c.window_right) return false;
  if (c.scale.value_or(1.0) < 0) return false;
  const SymInt rows = c.q.sym_size(1), keys = c.k.sym_size(1);
  if (TORCH_GUARD_OR_FALSE(c.q.sym_numel().sym_eq(0)) ||
      TORCH_GUARD_OR_FALSE(c.v.sym_numel().sym_eq(0))) {
    return false;
  }
  return !c.causal || TORCH_GUARD_OR_FALSE(rows.sym_eq(keys)) ||
         TORCH_GUARD_OR_FALSE(rows.sym_eq(1));
}

// Whether torch's FlashAttention kernels take the tensors, which it is then asked for by name.
bool flash_takes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const kittens::host::device* const gpu =
      q.is_cuda() ? kittens::host::find_device(q.device().index()) : nullptr;
  if (gpu == nullptr || gpu->major < 8) return false;
  const at::ScalarType type = q.scalar_type();
  const auto contiguous_rows = [](const Tensor& t) {
    return TORCH_GUARD_OR_FALSE(t.sym_stride(-1).sym_eq(1));
  };
  return (type == at::kHalf || type == at::kBFloat16) && contiguous_rows(q) && contiguous_rows(k) &&
         contiguous_rows(v) && TORCH_GUARD_OR_FALSE(q.sym_size(3).sym_eq(v.sym_size(3))) &&
         TORCH_GUARD_OR_FALSE((q.sym_size(3) % 8).sym_eq(0)) &&
         TORCH_GUARD_OR_FALSE(q.sym_size(3).sym_le(256));
}

// For one row, which is decoding, torch's first choice on a GPU is cuDNN, and that plans anew for
// each number of keys: 25 ms a token, measured on an H200. What FlashAttention cannot take, or the
// user has switched off, is left to torch's choice.
bool decodes_by_flash(const Tensor& q, const Tensor& k, const Tensor& v) {
  return at::globalContext().userEnabledFlashSDP() &&
         TORCH_GUARD_OR_FALSE(q.sym_size(1).sym_eq(1)) && flash_takes(q, k, v);
}

Tensor fused(const attention_call& c) {
  const bool one_row = TORCH_GUARD_OR_FALSE(c.q.sym_size(1).sym_eq(1));  // sees every key
  const bool grouped = !TORCH_GUARD_OR_FALSE(c.q.sym_size(2).sym_eq(c.k.sym_size(2)));
  const Tensor q = c.q.transpose(1, 2), k = c.k.transpose(1, 2), v = c.v.transpose(1, 2);
  const Tensor o =
      decodes_by_flash(c.q, c.k, c.v)
          ? std::get<0>(at::_scaled_dot_product_flash_attention(
                q, k, v, /*dropout_p=*/0.0, /*is_causal=*/false, /*return_debug_mask=*/false,
                c.scale))
          : at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                             /*is_causal=*/c.causal && !one_row, c.scale, grouped);
  return o.transpose(1, 2).contiguous();
}

// ---- Backward -----------------------------------------------------------------------------------

// Torch's own lse and masks are these: bottom-right causal, [B, Hq, Sq], natural logarithm; but
// +inf for a row that sees no key. Query heads that share keys are summed up by torch.
three_tensors flash_backward(const attention_call& c, const Tensor& o, const Tensor& lse,
                             const Tensor& dout) {
  const bool has_dead_rows = c.causal && c.q.size(1) > c.k.size(1);
  const Tensor sums = has_dead_rows ? lse.masked_fill(lse == -kInfinity, kInfinity) : lse;
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      dout.transpose(1, 2), c.q.transpose(1, 2), c.k.transpose(1, 2), c.v.transpose(1, 2),
      o.transpose(1, 2), sums.contiguous(), /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, c.q.size(1),
      c.k.size(1), /*dropout_p=*/0.0, c.causal, /*philox_seed=*/{}, /*philox_offset=*/{}, c.scale);
  return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
}

// p = exp(s − lse), masked;  dv = pᵀ do;  ds = p ∘ (do vᵀ − Σ do ∘ o + dlse);
// dq = scale · ds k;  dk = scale · dsᵀ q.
three_tensors formula_backward(const attention_call& c, const Tensor& o, const Tensor& lse,
                               const Tensor& dout, const optional_tensor& dlse) {
  const at::ScalarType type = attention_computing_dtype(c.q);
  const int64_t batch = c.q.size(0), rows = c.q.size(1), heads = c.q.size(2), keys = c.k.size(1),
                key_heads = c.k.size(2), group = key_heads == 0 ? 1 : heads / key_heads;
  const double scale = attention_scale(c.scale, c.q.size(3));
  // As in the formula: the query heads of one key head under one another, [B, Hk, group · Sq, …].
  const auto by_key_head = [&](const Tensor& t) {  // of [B, Sq, Hq, …]
    return t.to(type).transpose(1, 2).reshape({batch, key_heads, group * rows, t.size(3)});
  };
  const auto column = [&](const Tensor& t) {  // of [B, Hq, Sq]
    return t.to(type).reshape({batch, key_heads, group * rows, 1});
  };
  const Tensor queries = by_key_head(c.q), gradients = by_key_head(dout);
  const Tensor k = c.k.to(type).transpose(1, 2), v = c.v.to(type).transpose(1, 2);
  const optional_tensor seen = dense_mask(c);

  // A row without a key: exp(−inf − inf) = 0.
  const Tensor sums = column(lse).masked_fill(column(lse) == -kInfinity, kInfinity);
  Tensor weights = at::exp(at::matmul(queries, k.transpose(2, 3)) * scale - sums);
  if (seen) {
    weights = weights.reshape({batch, key_heads, group, rows, keys})
                  .masked_fill(seen->logical_not(), 0)
                  .reshape({batch, key_heads, group * rows, keys});
  }
  Tensor delta = (gradients * by_key_head(o)).sum(-1, /*keepdim=*/true);
  if (dlse) delta = delta - column(*dlse);
  const Tensor ds = weights * (at::matmul(gradients, v.transpose(2, 3)) - delta) * scale;

  const auto as_given = [](const Tensor& t, const Tensor& like) {
    return t.transpose(1, 2).to(like.scalar_type());
  };
  const Tensor dq = at::matmul(ds, k).reshape({batch, heads, rows, c.q.size(3)});
  return {as_given(dq, c.q), as_given(at::matmul(ds.transpose(2, 3), queries), c.k),
          as_given(at::matmul(weights.transpose(2, 3), gradients), c.v)};
}

}  // namespace

at::ScalarType attention_computing_dtype(const Tensor& q) {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

double attention_scale(std::optional<double> scale, int64_t head_dim) {
  return scale.value_or(head_dim == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(head_dim)));
}

bool is_stand_in(const Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kStandIns({DispatchKey::Python, DispatchKey::Functionalize,
                                           DispatchKey::FuncTorchBatched,
                                           DispatchKey::FuncTorchGradWrapper});
  return t.key_set().has_any(kStandIns);
}

two_tensors attention_by_aten(const attention_call& c, bool wants_lse) {
  const auto readable = [](const Tensor& t) { return t.is_cpu() && !is_stand_in(t); };
  if (!wants_lse && plain(c)) return {fused(c), Tensor()};
  if (!c.cu_seqlens_q) return formula(c, c.q, c.k, c.v, dense_mask(c));
  return readable(*c.cu_seqlens_q) && readable(*c.cu_seqlens_k) ? packed_by_sequence(c)
                                                                : packed_by_mask(c);
}

three_tensors attention_backward_by_aten(const attention_call& c, const Tensor& o,
                                         const Tensor& lse, const Tensor& dout,
                                         const optional_tensor& dlse) {
  constexpr int64_t kGrid = 65535;  // blocks in the second and third direction
  const bool flash = !dlse && c.q.size(0) <= kGrid && c.q.size(2) <= kGrid &&
                     flash_takes(c.q, c.k, c.v) && c.k.size(1) > 0 && c.q.numel() > 0;
  return flash ? flash_backward(c, o, lse, dout) : formula_backward(c, o, lse, dout, dlse);
}

}  // namespace thunderkittens
