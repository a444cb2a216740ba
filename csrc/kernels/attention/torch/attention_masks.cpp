// Masks of attention, as bool tensors. The diagonal of row i is i + Sk − Sq, or i + seqused_k − Sq.
#include "kernels/attention/torch/attention_masks.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

Tensor positions(const SymInt& count, const Tensor& like) {
  return at::arange(at::Scalar(count), like.options().dtype(at::kLong));
}

// `diagonal` [Sq], or [B, Sq]: the key position of each row's diagonal; `column` [Sk]. Returns bool
// [Sq, Sk], or [B, Sq, Sk].
Tensor band(const attention_call& c, const Tensor& diagonal, const Tensor& column) {
  const Tensor distance = column - diagonal.unsqueeze(-1);
  std::optional<int64_t> right = c.window_right;
  if (c.causal) right = 0;
  Tensor seen = at::ones_like(distance, distance.options().dtype(at::kBool));
  if (right) seen = seen & distance.le(*right);
  if (c.window_left) seen = seen & distance.ge(-*c.window_left);
  return seen;
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

// The call on these, [T, H, D], as one batch.
attention_call not_packed(attention_call c, const Tensor& q, const Tensor& k, const Tensor& v) {
  c.q = q.unsqueeze(0);
  c.k = k.unsqueeze(0);
  c.v = v.unsqueeze(0);
  c.cu_seqlens_q = c.cu_seqlens_k = std::nullopt;
  c.max_seqlen_q = c.max_seqlen_k = std::nullopt;
  return c;
}

std::vector<int64_t> offsets(const Tensor& cu_seqlens, int64_t total) {
  const Tensor values = cu_seqlens.to(at::kLong).contiguous();
  std::vector<int64_t> list(values.const_data_ptr<int64_t>(),
                            values.const_data_ptr<int64_t>() + values.numel());
  int64_t last = 0;
  for (int64_t& offset : list) last = offset = std::min(std::max(offset, last), total);
  return list;
}

}  // namespace

key_ranges::key_ranges(const attention_call& c) {
  const SymInt keys = c.k.sym_size(1);
  const Tensor some = c.seqused_k ? *c.seqused_k : *c.leftpad_k;
  const Tensor all = at::full_symint(some.sym_sizes(), at::Scalar(keys), some.options());
  end = c.seqused_k ? c.seqused_k->clamp(0, at::Scalar(keys)) : all;
  const Tensor first = c.leftpad_k ? c.leftpad_k->clamp_min(0) : at::zeros_like(end);
  const Tensor position = positions(keys, c.q);
  exist = (position >= first.unsqueeze(1)) & (position < end.unsqueeze(1));
}

attention_call key_ranges::of(const attention_call& c) const {
  attention_call one = c;
  const Tensor none = exist.logical_not().unsqueeze(-1).unsqueeze(-1);
  for (Tensor* t : {&one.k, &one.v}) *t = t->masked_fill(none, 0);
  return one;
}

optional_tensor dense_mask(const attention_call& c) {
  const SymInt rows = c.q.sym_size(1), columns = c.k.sym_size(1);
  const Tensor row = positions(rows, c.q), column = positions(columns, c.q);
  if (c.bounds_keys()) {
    const key_ranges keys(c);
    const Tensor diagonal = row + (keys.end.to(at::kLong) - at::Scalar(rows)).unsqueeze(1);
    return (band(c, diagonal, column) & keys.exist.unsqueeze(1)).unsqueeze(1).unsqueeze(1);
  }
  if (!c.causal && !c.window_left && !c.window_right) return std::nullopt;
  return band(c, row + at::Scalar(columns - rows), column);
}

packed_mask::packed_mask(const attention_call& c) {
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
  seen = band(c, diagonal, positions(columns, c.q) - key.start) & same;
  stray_rows = (query.sequence < 0).unsqueeze(-1).unsqueeze(-1);
  stray_keys = (key.sequence < 0).unsqueeze(-1).unsqueeze(-1);
}

attention_call packed_mask::of(const attention_call& c) const {
  const auto known = [](const Tensor& t, const Tensor& stray) { return t.masked_fill(stray, 0); };
  return not_packed(c, known(c.q, stray_rows), known(c.k, stray_keys), known(c.v, stray_keys));
}

attention_call packed_sequence::of(const attention_call& c) const {
  return not_packed(c, c.q.narrow(0, row, rows), c.k.narrow(0, key, keys),
                    c.v.narrow(0, key, keys));
}

std::vector<packed_sequence> packed_sequences(const attention_call& c) {
  const std::vector<int64_t> query = offsets(*c.cu_seqlens_q, c.q.size(0));
  const std::vector<int64_t> key = offsets(*c.cu_seqlens_k, c.k.size(0));
  std::vector<packed_sequence> list{{0, query.front(), 0, 0}};
  for (size_t i = 0; i + 1 < query.size(); ++i) {
    list.push_back({query[i], query[i + 1] - query[i], key[i], key[i + 1] - key[i]});
  }
  list.push_back({query.back(), c.q.size(0) - query.back(), 0, 0});
  return list;
}

head_layout::head_layout(const attention_call& c)
    : batch(c.q.sym_size(0)),
      key_heads(c.k.sym_size(2)),
      group(TORCH_GUARD_OR_FALSE(key_heads.sym_eq(0)) ? 1 : c.q.sym_size(2) / key_heads),
      rows(c.q.sym_size(1)),
      keys(c.k.sym_size(1)) {}

bool readable_sequences(const attention_call& c) {
  const auto readable = [](const Tensor& t) { return t.is_cpu() && !is_stand_in(t); };
  return readable(*c.cu_seqlens_q) && readable(*c.cu_seqlens_k);
}

}  // namespace thunderkittens
