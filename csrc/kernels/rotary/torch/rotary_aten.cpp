// rotary by ATen.
#include <ATen/ATen.h>

#include "kernels/rotary/torch/rotary_call.hpp"

namespace thunderkittens {
namespace {

// [N], or [B, S]: the row of the table for each token.
Tensor table_rows(const rotary_call& c, int64_t offset) {
  constexpr int64_t kFar = int64_t{1} << 62;  // sums of it and positions do not overflow
  const Tensor offsets = c.offsets ? c.offsets->to(at::kLong).clamp(-kFar, kFar) : Tensor();
  const auto options = c.q.options().dtype(at::kLong);
  const int64_t tokens = c.q.size(-3);
  Tensor position = at::arange(tokens, options);
  if (c.cu_seqlens) {
    const Tensor starts = c.cu_seqlens->to(at::kLong).contiguous();
    const Tensor sequence = at::searchsorted(starts, position, false, /*right=*/true) - 1;
    position =
        position -
        starts.index_select(0, sequence.clamp_min(0)).clamp_min(0).masked_fill(sequence < 0, 0);
    if (c.offsets) {  // zero before the first sequence and past the last
      const Tensor of_any = at::cat({offsets, at::zeros({1}, options)});
      position = position + of_any.index_select(0, sequence.remainder(starts.numel()));
    }
  } else if (c.offsets) {
    position = position + offsets.unsqueeze(1);
  }
  return (position + offset).clamp(0, c.cos.size(0) - 1);
}

// cos or sin of each token, […, tokens, 1, R / 2], in the dtype that is computed in.
Tensor of_tokens(const rotary_call& c, const Tensor& table, at::ScalarType type) {
  const int64_t offset = c.offset.guard_int(__FILE__, __LINE__), pairs = table.size(1);
  if (!c.cu_seqlens && !c.offsets) {
    return table.narrow(0, offset, c.q.size(1)).to(type).unsqueeze(1);
  }
  const Tensor rows = table_rows(c, offset);
  c10::DimVector sizes(rows.sizes());
  sizes.append({1, pairs});
  return table.index_select(0, rows.flatten()).to(type).view(sizes);
}

// The elements of the pairs: first or second of each.
Tensor of_pairs(const Tensor& x, const rotary_call& c, int64_t which) {
  const int64_t pairs = c.cos.size(1);
  return c.interleaved ? x.slice(-1, which, 2 * pairs, 2) : x.narrow(-1, which * pairs, pairs);
}

}  // namespace

void turn_by_aten(const rotary_call& c, const Tensor& x, const Tensor& out) {
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor cos = of_tokens(c, c.cos, type);
  const Tensor sin = of_tokens(c, c.conjugate ? c.sin.neg() : c.sin, type);
  const Tensor x1 = of_pairs(x, c, 0).to(type), x2 = of_pairs(x, c, 1).to(type);
  const Tensor first = x1 * cos - x2 * sin, second = x1 * sin + x2 * cos;
  of_pairs(out, c, 0).copy_(first);
  of_pairs(out, c, 1).copy_(second);
  if (!out.is_same(x)) out.slice(-1, 2 * c.cos.size(1)).copy_(x.slice(-1, 2 * c.cos.size(1)));
}

}  // namespace thunderkittens
