// Hedgehog attention in ATen ops, by blocks of 64 tokens, as the kernel computes it
// (hedgehog_attention_forward.cuh), and its gradients.
//
// With a column of ones behind v, numerator and denominator are columns of the same products, and
// Σ φ(k) is the last column of the state:
//
//   [N D](i) = Σ(j in the window) β e(i, j) [v(j) 1] + α Sᵀ φ(q(i)),   S = Σ(j before) φ(k(j))
//   [v(j) 1] e(i, j) = exp(s(i, j) − max s(i, ·)),   s = q kᵀ / √head_dim,   y = N / D
//
// Keys come in N + 1 blocks, of which block 0 lies before the first query: block b of queries has
// the window of blocks b and b + 1 of keys, and the state of those before b.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/hedgehog_attention/torch/hedgehog_attention_call.hpp"

namespace thunderkittens {
namespace {

constexpr int64_t kBlock = 64;  // tokens

at::ScalarType computing_dtype(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// [B, rows, H, D] to [B, H, blocks, 64, D] in the dtype that is computed in, `before` rows of zeros
// in front and as many behind as it takes.
Tensor in_blocks(const Tensor& t, int64_t before, int64_t blocks) {
  const Tensor by_head = t.to(computing_dtype(t)).transpose(1, 2);
  const int64_t behind = blocks * kBlock - before - t.size(1);
  return at::constant_pad_nd(by_head, {0, 0, before, behind})
      .view({t.size(0), t.size(2), blocks, kBlock, t.size(3)});
}

// … and back, contiguous [B, rows, H, D].
Tensor of_blocks(const Tensor& t, int64_t before, const Tensor& like) {
  return t.flatten(2, 3)
      .narrow(2, before, like.size(1))
      .transpose(1, 2)
      .to(like.scalar_type())
      .contiguous();
}

// Of each block of queries the 128 keys that its window may have: [B, H, N, 128, …].
Tensor windows(const Tensor& blocks) {
  const int64_t count = blocks.size(2) - 1;
  return at::cat({blocks.narrow(2, 0, count), blocks.narrow(2, 1, count)}, 3);
}
// What each block of keys has got in both of its windows.
Tensor add_up_windows(const Tensor& t) {
  const int64_t count = t.size(2);
  std::vector<int64_t> sizes = t.sizes().vec();
  sizes[2] = count + 1;
  sizes[3] = kBlock;
  Tensor sum = at::zeros(sizes, t.options());
  sum.narrow(2, 0, count).add_(t.narrow(3, 0, kBlock));
  sum.narrow(2, 1, count).add_(t.narrow(3, kBlock, kBlock));
  return sum;
}

// A parameter of each head, [H, …], beside blocks [B, H, N, …].
Tensor of_heads(const Tensor& t, at::ScalarType type) {
  return (t.dim() == 1 ? t.view({-1, 1, 1, 1}) : t.unsqueeze(1)).to(type);
}

// φ(x) = [softmax(x W), softmax(−x W)].
Tensor features(const Tensor& x, const Tensor& map) {
  const Tensor logits = at::matmul(x, map);
  return at::cat({logits.softmax(-1), logits.neg().softmax(-1)}, -1);
}
// The gradient of x W, from φ(x) and its gradient.
Tensor logits_gradient(const Tensor& features, const Tensor& gradient) {
  const auto half = [&](int64_t i) {
    const int64_t width = features.size(-1) / 2;
    const Tensor f = features.narrow(-1, i * width, width),
                 d = gradient.narrow(-1, i * width, width);
    return f * (d - (f * d).sum(-1, /*keepdim=*/true));
  };
  return half(0) - half(1);
}

// All that forward and backward have in common.
struct blocks_of_call {
  int64_t before;                        // rows that are missing in front of k and v
  double scale;                          // of scores
  Tensor q, k, v;                        // [B, H, N, 64, D], [B, H, N + 1, 64, …], v with its ones
  Tensor q_map, k_map, alpha, beta;      // of_heads
  Tensor q_features, k_features;         // φ; of keys those that some state has, else 0
  Tensor keys, values;                   // windows
  Tensor scores, largest, exponentials;  // [B, H, N, 64, 128], [B, H, N, 64, 1], e
  Tensor states;                         // before each block of queries, [B, H, N, 2F, E + 1]
  Tensor final;                          // [B, H, 2F, E + 1]
  Tensor totals;                         // [N D], [B, H, N, 64, E + 1]

  explicit blocks_of_call(const hedgehog_attention_call& c);

  int64_t count() const { return q.size(2); }
  Tensor weights() const { return beta * exponentials; }

 private:
  void attend(const Tensor& first);
  void find_states(const hedgehog_attention_call& c, const Tensor& first);
};

blocks_of_call::blocks_of_call(const hedgehog_attention_call& c)
    : before(c.has_window() ? 0 : kBlock), scale(1 / std::sqrt(double(c.q.size(3)))) {
  const at::ScalarType type = computing_dtype(c.q);
  const int64_t blocks = (c.q.size(1) + kBlock - 1) / kBlock;
  q = in_blocks(c.q, 0, blocks);
  k = in_blocks(c.k, before, blocks + 1);
  const Tensor only_values = in_blocks(c.v, before, blocks + 1);
  v = at::cat({only_values, at::ones_like(only_values.narrow(-1, 0, 1))}, -1);
  q_map = of_heads(c.q_map, type);
  k_map = of_heads(c.k_map, type);
  alpha = of_heads(c.alpha, type);
  beta = of_heads(c.beta, type);
  // The first row that exists, [B, 1, 1, 1].
  const Tensor first = c.first && c.has_window()
                           ? c.first->to(at::kLong).view({-1, 1, 1, 1})
                           : at::full({1, 1, 1, 1}, before, c.q.options().dtype(at::kLong));
  find_states(c, first);
  attend(first);
}

void blocks_of_call::attend(const Tensor& first) {
  keys = windows(k);
  values = windows(v);
  const auto at = q.options().dtype(at::kLong);
  const Tensor row = at::arange(kBlock, at).unsqueeze(1), column = at::arange(2 * kBlock, at);
  const Tensor later = column > row + kBlock;  // [64, 128]
  scores = (at::matmul(q, keys.transpose(-1, -2)) * scale)
               .masked_fill(later, -std::numeric_limits<double>::infinity());
  scores.narrow(2, 0, 1).masked_fill_((column < first).unsqueeze(1),
                                      -std::numeric_limits<double>::infinity());
  largest = scores.amax(-1, /*keepdim=*/true);
  exponentials = at::exp(scores - largest);
  totals = at::matmul(weights(), values) + alpha * at::matmul(q_features, states);
}

void blocks_of_call::find_states(const hedgehog_attention_call& c, const Tensor& first) {
  q_features = features(q, q_map);
  const auto at = q.options().dtype(at::kLong);
  // Those that have left the window: all but the last 64 tokens.
  const Tensor row = at::arange(count() * kBlock, at).view({1, 1, count(), kBlock, 1});
  const Tensor inside = (row >= first.unsqueeze(-1)).logical_and(row < c.q.size(1));
  k_features = features(k.narrow(2, 0, count()), k_map).masked_fill(inside.logical_not(), 0);
  const Tensor added = at::matmul(k_features.transpose(-1, -2), v.narrow(2, 0, count()));
  final = at::zeros_like(added.select(2, 0));
  if (c.kv_state) final.narrow(-1, 0, final.size(-1) - 1).copy_(*c.kv_state);
  if (c.k_state) final.select(-1, final.size(-1) - 1).copy_(*c.k_state);
  states = at::empty_like(added);
  for (int64_t i = 0; i < count(); ++i) {
    states.select(2, i).copy_(final);
    final = final + added.select(2, i);
  }
}

Tensor numerator(const Tensor& totals) { return totals.narrow(-1, 0, totals.size(-1) - 1); }
Tensor denominator(const Tensor& totals) { return totals.narrow(-1, totals.size(-1) - 1, 1); }

}  // namespace

hedgehog_attention_results hedgehog_attention_by_aten(const hedgehog_attention_call& c) {
  const blocks_of_call b(c);
  return {of_blocks(numerator(b.totals) / denominator(b.totals), 0, c.q),
          numerator(b.final).contiguous(), denominator(b.final).squeeze(-1).contiguous()};
}

hedgehog_attention_gradients hedgehog_attention_backward_by_aten(
    const hedgehog_attention_backward_call& call) {
  const hedgehog_attention_call& c = call.forward;
  const blocks_of_call b(c);
  const auto transposed = [](const Tensor& t) { return t.transpose(-1, -2); };

  const Tensor below = denominator(b.totals), y = numerator(b.totals) / below;
  const Tensor dy = call.dy ? in_blocks(*call.dy, 0, b.count()) / below : at::zeros_like(y);
  const Tensor dtotals = at::cat({dy, -(dy * y).sum(-1, /*keepdim=*/true)}, -1);

  // The window. What e(i, j) is divided by, exp(max), is a score too: the largest, of equal ones
  // each by its part.
  const Tensor dexponentials = at::matmul(dtotals, transposed(b.values));
  const Tensor dvalues = at::matmul(transposed(b.weights()), dtotals);
  const Tensor by_score = b.exponentials * dexponentials;
  // As numbers: a quotient of booleans is float32, whatever is computed in.
  const Tensor is_largest = (b.scores == b.largest).to(b.scores.scalar_type());
  const Tensor part = is_largest / is_largest.sum(-1, /*keepdim=*/true);
  const Tensor dscores = b.beta * (by_score - by_score.sum(-1, /*keepdim=*/true) * part) * b.scale;
  Tensor dq = at::matmul(dscores, b.keys);
  Tensor dk = add_up_windows(at::matmul(transposed(dscores), b.q));
  Tensor dv = add_up_windows(dvalues);

  // What lies before it.
  const Tensor dq_features = b.alpha * at::matmul(dtotals, transposed(b.states));
  const Tensor dstates = b.alpha * at::matmul(transposed(b.q_features), dtotals);
  Tensor dstate = at::zeros_like(b.final);
  if (call.dkv_final) numerator(dstate).copy_(*call.dkv_final);
  if (call.dk_final) denominator(dstate).squeeze(-1).copy_(*call.dk_final);
  Tensor dadded = at::empty_like(dstates);
  for (int64_t i = b.count() - 1; i >= 0; --i) {
    dadded.select(2, i).copy_(dstate);
    dstate = dstate + dstates.select(2, i);
  }
  const Tensor before = b.k.narrow(2, 0, b.count()), values = b.v.narrow(2, 0, b.count());
  dv.narrow(2, 0, b.count()).add_(at::matmul(b.k_features, dadded));
  const Tensor dq_logits = logits_gradient(b.q_features, dq_features);
  const Tensor dk_logits = logits_gradient(b.k_features, at::matmul(values, transposed(dadded)));
  dq = dq + at::matmul(dq_logits, transposed(b.q_map));
  dk.narrow(2, 0, b.count()).add_(at::matmul(dk_logits, transposed(b.k_map)));

  const auto map_gradient = [&](const Tensor& x, const Tensor& dlogits, const Tensor& like) {
    return at::matmul(transposed(x.transpose(0, 1).flatten(1, 3)),
                      dlogits.transpose(0, 1).flatten(1, 3))
        .to(like.scalar_type());
  };
  const auto of_head = [&](const Tensor& t) { return t.sum({0, 2, 3, 4}); };
  hedgehog_attention_gradients results;
  const auto& needs = call.needs;
  if (needs[0]) results[0] = of_blocks(dq, 0, c.q);
  if (needs[1]) results[1] = of_blocks(dk, b.before, c.k);
  if (needs[2]) results[2] = of_blocks(numerator(dv), b.before, c.v);
  if (needs[3]) results[3] = map_gradient(b.q, dq_logits, c.q_map);
  if (needs[4]) results[4] = map_gradient(before, dk_logits, c.k_map);
  if (needs[5]) results[5] = of_head(dtotals * at::matmul(b.q_features, b.states));
  if (needs[6]) results[6] = of_head(by_score);
  if (needs[7] && c.kv_state) results[7] = numerator(dstate).contiguous();
  if (needs[8] && c.k_state) results[8] = denominator(dstate).squeeze(-1).contiguous();
  return results;
}

}  // namespace thunderkittens
