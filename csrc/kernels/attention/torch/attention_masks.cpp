// Masks of attention, as bool tensors. Rows and keys are counted from the end of their sequence, so
// that the diagonal of row i, at the key i + Sk − Sq or i + seqused_k − Sq, is at i itself.
#include "kernels/attention/torch/attention_masks.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

Tensor positions(const SymInt& count, const Tensor& like) {
  return at::arange(at::Scalar(count), like.options().dtype(at::kLong));
}
// The same, counted from behind the last.
Tensor places(const SymInt& count, const Tensor& like) {
  return at::arange(at::Scalar(-count), at::Scalar(0), like.options().dtype(at::kLong));
}

// Places before the end: of rows [Sq], and of keys [Sk] or [B, Sk]. Returns bool [Sq, Sk], or
// [B, Sq, Sk].
Tensor band(const attention_call& c, const Tensor& row, const Tensor& key) {
  const Tensor distance = key.unsqueeze(-2) - row.unsqueeze(-1);
  std::optional<int64_t> right = c.window_right;
  if (c.causal) right = 0;
  Tensor seen = at::ones_like(distance, distance.options().dtype(at::kBool));
  if (right) seen = seen & distance.le(*right);
  if (c.window_left) seen = seen & distance.ge(-*c.window_left);
  return seen;
}

// The sequences of `count` packed tokens.
struct token_places {
  Tensor sequence, is_stray, place;  // which one, whether none, and where before its end

  token_places(const Tensor& cu_seqlens, const SymInt& count) {
    // The running maximum, as in offsets(): bucketize wants them in order.
    const Tensor ends =
        std::get<0>(at::cummax(cu_seqlens.to(at::kLong).clamp(0, at::Scalar(count)), 0));
    const at::Scalar past(ends.sym_size(0));
    const Tensor position = positions(count, cu_seqlens);
    sequence = at::bucketize(position, ends, false, /*right=*/true);
    is_stray = (sequence == 0) | (sequence == past);
    place = position - ends.index_select(0, sequence.masked_fill(is_stray, 0));
  }
};

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

masked_call::masked_call(attention_call c) : call(std::move(c)) {
  const SymInt rows = call.q.sym_size(-3), keys = call.k.sym_size(-3);
  if (call.cu_seqlens_q) {
    const token_places q(*call.cu_seqlens_q, rows), k(*call.cu_seqlens_k, keys);
    const auto known = [](const Tensor& t, const Tensor& stray) { return t.masked_fill(stray, 0); };
    const Tensor stray_keys = k.is_stray.unsqueeze(-1).unsqueeze(-1);
    stray_rows = q.is_stray.unsqueeze(-1).unsqueeze(-1);
    call = not_packed(call, known(call.q, stray_rows), known(call.k, stray_keys),
                      known(call.v, stray_keys));
    const Tensor same = q.sequence.unsqueeze(1) == k.sequence.unsqueeze(0);
    seen = band(call, q.place, k.place) & same & k.is_stray.logical_not();
  } else if (call.bounds_keys()) {
    const Tensor key = positions(keys, call.q);
    const auto of_batch = [&](const optional_tensor& t, const SymInt& otherwise) {
      return t ? t->to(at::kLong).clamp(0, at::Scalar(keys)).unsqueeze(1)
               : at::full_symint({1, 1}, at::Scalar(otherwise), key.options());
    };
    const Tensor end = of_batch(call.seqused_k, keys);
    const Tensor exist = (key >= of_batch(call.leftpad_k, 0)) & (key < end);  // [B, Sk]
    const Tensor none = exist.logical_not().unsqueeze(-1).unsqueeze(-1);
    for (Tensor* t : {&call.k, &call.v}) *t = t->masked_fill(none, 0);
    seen = band(call, places(rows, call.q), key - end) & exist.unsqueeze(1);
  } else if (call.causal || call.window_left || call.window_right) {
    seen = band(call, places(rows, call.q), places(keys, call.q));
  }
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
