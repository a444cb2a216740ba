// attention_decode by ATen: nothing is read back from the device.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_decode/torch/attention_decode_call.hpp"

namespace thunderkittens {

double attention_decode_call::scale_or_default() const {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [B, capacity, Hk, D]
Tensor gathered(const Tensor& cache, const optional_tensor& table) {
  if (!table) return cache;
  const Tensor pages = table->to(at::kLong).clamp(0, cache.size(0) - 1).flatten();
  return as_moved(cache)
      .index_select(0, pages)
      .view(cache.scalar_type())
      .reshape({table->size(0), table->size(1) * cache.size(1), cache.size(2), cache.size(3)});
}

}  // namespace

Tensor attention_decode_by_aten(const attention_decode_call& c) {
  const int64_t batch = c.q.size(0), queries = c.q.size(1), heads = c.q.size(2);
  const int64_t key_heads = c.k_cache.size(2), group = heads / key_heads;
  const int64_t capacity = c.cache().capacity();
  if (c.cache().is_empty()) return at::zeros(c.q.sizes(), c.q.options());
  const at::ScalarType type = c.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto cached = [&](const Tensor& cache, const optional_tensor& of_heads) {
    const Tensor all = gathered(cache, c.page_table).to(type);
    return of_heads ? all * of_heads->to(type).unsqueeze(-1) : all;
  };
  const Tensor k = cached(c.k_cache, c.k_scale), v = cached(c.v_cache, c.v_scale);
  const auto options = c.q.options().dtype(at::kLong);
  const Tensor lengths = c.seqlens.to(at::kLong).clamp(0, capacity).view({batch, 1, 1});
  const int64_t left = std::min(c.window_left.value_or(capacity), capacity);

  // [B, Sq, S]: which key is seen by which query; [B, S]: by any.
  const Tensor keys = at::arange(capacity, options);
  const Tensor last = lengths - queries + at::arange(queries, options).unsqueeze(1);
  const Tensor seen = (keys <= last).logical_and(keys >= last - left);
  const Tensor unseen = seen.any(1).logical_not().view({batch, capacity, 1, 1});

  const Tensor rows = c.q.to(type)
                          .reshape({batch, queries, key_heads, group, -1})
                          .transpose(1, 2)
                          .reshape({batch, key_heads, queries * group, -1});
  Tensor scores = at::matmul(rows, k.permute({0, 2, 3, 1})) * c.scale_or_default();
  if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
  scores = scores.view({batch, key_heads, queries, group, capacity})
               .masked_fill(seen.logical_not().view({batch, 1, queries, 1, capacity}), -kInfinity);
  Tensor most = scores.amax(-1, /*keepdim=*/true), sinks;
  if (c.sinks) {
    sinks = c.sinks->to(type).view({1, key_heads, 1, group, 1});
    most = at::maximum(most, sinks);
  }
  most = most.masked_fill(most == -kInfinity, 0);
  const Tensor weights = at::exp(scores - most);
  Tensor sum = weights.sum(-1, /*keepdim=*/true);
  if (c.sinks) sum = sum + at::exp(sinks - most);
  // What nobody sees may be anything; 0 · NaN is NaN.
  const Tensor values = v.masked_fill(unseen, 0).transpose(1, 2).unsqueeze(2);
  const Tensor o = at::matmul(weights.flatten(2, 3), values.squeeze(2))
                       .view({batch, key_heads, queries, group, -1}) /
                   sum.masked_fill(sum == 0, 1);
  return o.transpose(1, 2).reshape(c.q.sizes()).to(c.q.scalar_type()).contiguous();
}

}  // namespace thunderkittens
