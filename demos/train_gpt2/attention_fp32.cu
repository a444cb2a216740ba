// Causal attention in float32, forward and backward: a warp for each row, its lanes over the head
// dimension. For float32 training alone, where exactness counts and not speed: every score is
// computed again in the backward, and none is stored.
#include "lane_values.cuh"

#include <kittens/host/ceil_div.h>
#include <kittens/host/launch.cuh>

namespace gpt2 {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;

// Which row a warp has: of batch b, head h of so many, at position t. Not `inside`: none.
struct place {
  int64_t b, h, t;
  bool inside;

  KITTENS_DEVICE place(const attention_fp32& p, int64_t heads) {
    const int64_t row = int64_t{arch::block_x()} * kWarps + arch::warp_id();
    t = row % p.length;
    h = row / p.length % heads;
    b = row / (p.length * heads);
    inside = b < p.batch;
  }
  // Where position `t` of a head of this batch starts, in rows `stride` apart.
  KITTENS_DEVICE int64_t offset(const attention_fp32& p, int64_t head, int64_t t,
                                int64_t stride) const {
    return (b * p.length + t) * stride + head * p.head_dim;
  }
  // Of lse and delta.
  KITTENS_DEVICE int64_t number(const attention_fp32& p, int64_t head, int64_t t) const {
    return (b * p.heads + head) * p.length + t;
  }
};

__global__ void __launch_bounds__(kThreads)
    forward_kernel(attention_fp32 p, attention_fp32_tensors tensors) {
  const place at(p, p.heads);
  if (!at.inside) return;
  lane_values q, o;
  load(q, tensors.q + at.offset(p, at.h, at.t, p.stride), p.head_dim);
  const int64_t first = at.offset(p, at.h / (p.heads / p.key_heads), 0, p.stride);
  const float lse =
      attend(o, q, tensors.k + first, tensors.v + first, p.stride, at.t + 1, p.head_dim);
  store(tensors.o + at.offset(p, at.h, at.t, p.heads * p.head_dim), o, p.head_dim);
  if (arch::lane_id() == 0) arch::store_global(tensors.lse + at.number(p, at.h, at.t), lse);
}

// dq of a row, and its delta = Σ do ∘ o, which the other kernel reads.
__global__ void __launch_bounds__(kThreads)
    query_backward_kernel(attention_fp32 p, attention_fp32_tensors tensors) {
  const place at(p, p.heads);
  if (!at.inside) return;
  const int64_t row = at.offset(p, at.h, at.t, p.heads * p.head_dim);
  const int64_t key_head = at.h / (p.heads / p.key_heads), number = at.number(p, at.h, at.t);
  lane_values q, k, v, d_o, o, dq{};
  load(q, tensors.q + at.offset(p, at.h, at.t, p.stride), p.head_dim);
  load(o, tensors.o + row, p.head_dim);
  load(d_o, tensors.d_o + row, p.head_dim);
  const float delta = dot(d_o, o), lse = arch::load_global(tensors.lse + number);
  for (int64_t j = 0; j <= at.t; ++j) {
    load(k, tensors.k + at.offset(p, key_head, j, p.stride), p.head_dim);
    load(v, tensors.v + at.offset(p, key_head, j, p.stride), p.head_dim);
    const float weight = expf(dot(q, k) * scale_of(p.head_dim) - lse);
    combine(dq, 1.0f, weight * (dot(d_o, v) - delta) * scale_of(p.head_dim), k);
  }
  store(tensors.dq + at.offset(p, at.h, at.t, p.stride), dq, p.head_dim);
  if (arch::lane_id() == 0) arch::store_global(tensors.delta + number, delta);
}

// dk and dv of a row, which all heads of its group have seen.
__global__ void __launch_bounds__(kThreads)
    key_backward_kernel(attention_fp32 p, attention_fp32_tensors tensors) {
  const place at(p, p.key_heads);
  if (!at.inside) return;
  const int64_t group = p.heads / p.key_heads;
  lane_values q, k, v, d_o, dk{}, dv{};
  load(k, tensors.k + at.offset(p, at.h, at.t, p.stride), p.head_dim);
  load(v, tensors.v + at.offset(p, at.h, at.t, p.stride), p.head_dim);
  for (int64_t head = at.h * group; head < (at.h + 1) * group; ++head) {
    for (int64_t i = at.t; i < p.length; ++i) {
      load(q, tensors.q + at.offset(p, head, i, p.stride), p.head_dim);
      load(d_o, tensors.d_o + at.offset(p, head, i, p.heads * p.head_dim), p.head_dim);
      const float lse = arch::load_global(tensors.lse + at.number(p, head, i));
      const float delta = arch::load_global(tensors.delta + at.number(p, head, i));
      const float weight = expf(dot(q, k) * scale_of(p.head_dim) - lse);
      combine(dv, 1.0f, weight, d_o);
      combine(dk, 1.0f, weight * (dot(d_o, v) - delta) * scale_of(p.head_dim), q);
    }
  }
  const int64_t row = at.offset(p, at.h, at.t, p.stride);
  store(tensors.dk + row, dk, p.head_dim);
  store(tensors.dv + row, dv, p.head_dim);
}

void launch_rows(void (*kernel)(attention_fp32, attention_fp32_tensors), const attention_fp32& p,
                 const attention_fp32_tensors& t, int64_t heads, stream s) {
  const int64_t rows = p.batch * heads * p.length;
  host::launch(kernel, {.grid = {host::ceil_div(rows, kWarps)}, .block = {kThreads}}, s, p, t);
}

}  // namespace

void attention_forward(const attention_fp32& p, const attention_fp32_tensors& t, stream s) {
  launch_rows(forward_kernel, p, t, p.heads, s);
}

void attention_backward(const attention_fp32& p, const attention_fp32_tensors& t, stream s) {
  launch_rows(query_backward_kernel, p, t, p.heads, s);
  launch_rows(key_backward_kernel, p, t, p.key_heads, s);
}

}  // namespace gpt2
