// based_attention in ATen ops, chunk by chunk as the kernel computes it (based_attention.cuh).
//
// With `normalize`, v has one more column, of ones, and so have the state, whose last column are
// the sums, and the products of weights with v, whose last column is the denominator.
#include <ATen/ATen.h>

#include <cmath>

#include "binding/layout.h"
#include "kernels/based_attention/torch/based_attention_call.hpp"

namespace thunderkittens {
namespace {

constexpr int64_t kChunk = 64;

at::ScalarType computing_dtype(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// φ of tensors […, D] on one device.
class feature_map {
 public:
  feature_map(const Tensor& like, double scale)
      : width_(like.size(-1)),
        scale_(scale),
        pairs_(at::triu_indices(width_, width_, 0, like.options().dtype(at::kLong))),
        weights_(at::full({pairs_.size(1)}, scale, options_of(like))
                     .masked_fill_(first().eq(second()), scale * std::sqrt(0.5))) {}

  // [..., 1 + D + D (D + 1) / 2]
  Tensor operator()(const Tensor& x) const {
    const Tensor products = x.index_select(-1, first()) * x.index_select(-1, second());
    return at::cat({at::ones_like(x.narrow(-1, 0, 0).sum(-1, /*keepdim=*/true)),
                    x * std::sqrt(scale_), products * weights_},
                   -1);
  }
  // The gradient of x from that of φ(x): M x, where M is symmetric and has the products' gradients,
  // on its diagonal twice. (index_add would add them up in any order on a GPU.)
  Tensor gradient(const Tensor& x, const Tensor& d) const {
    const Tensor of_products = d.narrow(-1, 1 + width_, pairs_.size(1)) * weights_;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.push_back(width_);
    const Tensor m = of_products.index_select(-1, places()).view(sizes);
    const Tensor twice = at::eye(width_, x.options()) + 1;
    return d.narrow(-1, 1, width_) * std::sqrt(scale_) +
           at::matmul(m * twice, x.unsqueeze(-1)).squeeze(-1);
  }

 private:
  static at::TensorOptions options_of(const Tensor& t) {
    return t.options().dtype(computing_dtype(t));
  }
  Tensor first() const { return pairs_.select(0, 0); }
  Tensor second() const { return pairs_.select(0, 1); }
  // Of each element (e, f) of a matrix, the number of its pair, [D²]: rows of D, D − 1, … pairs.
  Tensor places() const {
    const Tensor e = at::arange(width_, pairs_.options());
    const Tensor low = at::minimum(e.unsqueeze(1), e), high = at::maximum(e.unsqueeze(1), e);
    return (low * (2 * width_ - low - 1)).floor_divide(2).add(high).flatten();
  }

  int64_t width_;
  double scale_;
  Tensor pairs_;    // [2, D (D + 1) / 2]: e ≤ f
  Tensor weights_;  // of their products
};

Tensor with_column(const Tensor& t, const Tensor& column) {
  return at::cat({t, column.unsqueeze(-1)}, -1);
}

// A call in the dtype that is computed in, heads before tokens: q, k [B, H, S, D], v [B, H, S, V'],
// states [B, H, F, V']; V' is V, or V + 1.
struct recurrence {
  Tensor q, k, v, state;
  double scale;
  feature_map features;

  explicit recurrence(const based_attention_call& c)
      : q(by_head(c.q)),
        k(by_head(c.k)),
        v(by_head(c.v)),
        scale(c.scale_or_usual()),
        features(c.q, scale) {
    const int64_t width = c.q.size(3), count = 1 + width + width * (width + 1) / 2;
    const auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, q.options()); };
    state = c.initial_state ? c.initial_state->to(q.scalar_type())
                            : zeros({v.size(0), v.size(1), count, v.size(3)});
    if (!c.normalize) return;
    state = with_column(state, c.initial_sums ? c.initial_sums->to(q.scalar_type())
                                              : zeros({v.size(0), v.size(1), count}));
    v = with_column(v, at::ones(v.sizes().slice(0, 3), v.options()));
  }

  static Tensor by_head(const Tensor& t) { return t.to(computing_dtype(t)).transpose(1, 2); }

  int64_t length() const { return q.size(2); }
  int64_t chunks() const { return (length() + kChunk - 1) / kChunk; }
  Tensor chunk_of(const Tensor& t, int64_t i) const {
    return t.narrow(2, i * kChunk, std::min(kChunk, length() - i * kChunk));
  }
  // s of a chunk, [B, H, 64, 64].
  Tensor scores(int64_t i) const {
    return at::matmul(chunk_of(q, i), chunk_of(k, i).transpose(-1, -2)) * scale;
  }
  static Tensor weights(const Tensor& s) { return (1 + s + s * s / 2).tril(); }
};

// [B, H, S, D] to a contiguous [B, S, H, D] of the dtype of `like`; 0 elements at no tokens.
Tensor joined(const std::vector<Tensor>& chunks, const Tensor& like) {
  return at::cat(chunks, 2).transpose(1, 2).to(like.scalar_type()).contiguous();
}

// Numerators and denominators apart; a chunk of tokens [B, H, 64, V + 1].
struct quotient {
  Tensor numerator, denominator;

  quotient(const Tensor& both, double eps)
      : numerator(both.narrow(-1, 0, both.size(-1) - 1)),
        denominator(both.narrow(-1, both.size(-1) - 1, 1) + eps) {}
  Tensor value() const { return numerator / denominator; }
};

}  // namespace

based_attention_results based_attention_by_aten(const based_attention_call& c) {
  recurrence r(c);
  std::vector<Tensor> outputs(r.chunks());
  for (int64_t i = 0; i < r.chunks(); ++i) {
    const Tensor v = r.chunk_of(r.v, i);
    const Tensor sums = at::matmul(recurrence::weights(r.scores(i)), v) +
                        at::matmul(r.features(r.chunk_of(r.q, i)), r.state);
    outputs[i] = c.normalize ? quotient(sums, c.eps).value() : sums;
    r.state = r.state + at::matmul(r.features(r.chunk_of(r.k, i)).transpose(-1, -2), v);
  }
  const int64_t values = c.v.size(3);
  return {joined(outputs, c.v), r.state.narrow(-1, 0, values).contiguous(),
          c.normalize ? r.state.select(-1, values).contiguous() : Tensor()};
}

based_attention_gradients based_attention_backward_by_aten(const based_attention_backward_call& b) {
  const based_attention_call& c = b.forward;
  recurrence r(c);
  const int64_t values = c.v.size(3);
  const Tensor dout = recurrence::by_head(b.dout);
  // Of the sums over v's columns, of which the last is the denominator's.
  std::vector<Tensor> d_sums(r.chunks()), dq(r.chunks()), dk(r.chunks()), dv(r.chunks());
  const auto d_scores = [&](const Tensor& s, int64_t i) {
    return (at::matmul(d_sums[i], r.chunk_of(r.v, i).transpose(-1, -2)) * (1 + s)).tril() * r.scale;
  };
  for (int64_t i = 0; i < r.chunks(); ++i) {
    const Tensor q = r.chunk_of(r.q, i), k = r.chunk_of(r.k, i), v = r.chunk_of(r.v, i);
    const Tensor s = r.scores(i), dy = r.chunk_of(dout, i);
    d_sums[i] = dy;
    if (c.normalize) {
      const quotient y(at::matmul(recurrence::weights(s), v) + at::matmul(r.features(q), r.state),
                       c.eps);
      const Tensor d_numerator = dy / y.denominator;
      d_sums[i] = with_column(d_numerator, -(d_numerator * y.value()).sum(-1));
    }
    dq[i] = at::matmul(d_scores(s, i), k) +
            r.features.gradient(q, at::matmul(d_sums[i], r.state.transpose(-1, -2)));
    r.state = r.state + at::matmul(r.features(k).transpose(-1, -2), v);
  }
  Tensor d_state = b.dfinal_state ? b.dfinal_state->to(dout.scalar_type())
                                  : at::zeros_like(r.state.narrow(-1, 0, values));
  if (c.normalize) {
    d_state = with_column(d_state, b.dfinal_sums ? b.dfinal_sums->to(dout.scalar_type())
                                                 : at::zeros_like(r.state.select(-1, 0)));
  }
  for (int64_t i = r.chunks() - 1; i >= 0; --i) {
    const Tensor q = r.chunk_of(r.q, i), k = r.chunk_of(r.k, i), s = r.scores(i);
    dv[i] = at::matmul(recurrence::weights(s).transpose(-1, -2), d_sums[i]) +
            at::matmul(r.features(k), d_state);
    dk[i] = at::matmul(d_scores(s, i).transpose(-1, -2), q) +
            r.features.gradient(k, at::matmul(r.chunk_of(r.v, i), d_state.transpose(-1, -2)));
    d_state = d_state + at::matmul(r.features(q).transpose(-1, -2), d_sums[i]);
  }
  based_attention_gradients results;
  if (b.needs[0]) results[0] = joined(dq, c.q);
  if (b.needs[1]) results[1] = joined(dk, c.k);
  if (b.needs[2]) {
    for (Tensor& t : dv) t = t.narrow(-1, 0, values);
    results[2] = joined(dv, c.v);
  }
  if (b.needs[3] && c.initial_state) results[3] = d_state.narrow(-1, 0, values).contiguous();
  if (b.needs[4] && c.initial_sums && c.normalize)
    results[4] = d_state.select(-1, values).contiguous();
  return results;
}

}  // namespace thunderkittens
