// The norms by ATen, from their formulas: for the CPU, for float64 and for whatever no kernel
// takes.
#include <ATen/ATen.h>

#include "binding/philox.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {
namespace {

optional_tensor to(const optional_tensor& t, at::ScalarType type) {
  return t ? optional_tensor(t->to(type)) : std::nullopt;
}

// The dtype in which ATen computes: x's own where torch has a kernel of that type with float32
// statistics, else float32, rounded once at the end.
at::ScalarType layer_norm_dtype(const Tensor& x, const optional_tensor& weight,
                                const optional_tensor& bias) {
  const at::ScalarType type = x.scalar_type();
  const bool agree =
      (!weight || weight->scalar_type() == type) && (!bias || bias->scalar_type() == type);
  return agree && x.is_cuda() ? type : statistics_dtype(x);
}

// weight + weight_offset, or a one.
Tensor scale_of(const optional_tensor& weight, double offset, const Tensor& like) {
  return weight ? weight->to(like.scalar_type()) + offset : at::ones({1}, like.options());
}

// What dropout multiplies the elements of `x` by: the mask that dropout.cuh describes, on x's
// device, whose seed is not read by the host.
Tensor dropout_factors(const Tensor& x, double p, const Tensor& seed, at::ScalarType type) {
  constexpr int64_t kWord = 0xffffffff;
  const Tensor one = seed.reshape({1}), zero = at::zeros_like(one);
  const Tensor number = philox_words<Tensor>(
      x.numel(), zero, zero,
      {one.bitwise_and(kWord), one.bitwise_right_shift(32).bitwise_and(kWord)});
  const dropout_params drop = dropout_params::of(p, nullptr);
  const Tensor kept = number.ge(static_cast<int64_t>(drop.drop_below)).view(x.sizes());
  return kept.to(type).mul_(type == at::kDouble ? 1.0 / (1.0 - p) : drop.scale);
}

}  // namespace

tensor_array<4> norm_forward_aten(const norm_member& member, const norm_call& call) {
  const Tensor& x = call.x;
  const at::ScalarType type = call.residual || !member.centred()
                                  ? statistics_dtype(x)
                                  : layer_norm_dtype(x, call.weight, call.bias);
  Tensor s = x.to(type);
  if (call.seed) s = s * dropout_factors(x, call.dropout_p, *call.seed, type);
  if (call.residual) s = s + call.residual->to(type);
  tensor_array<4> results;
  if (call.residual) results[kSum] = s.to(call.residual->scalar_type()).contiguous();
  const auto statistics = x.sizes().slice(0, x.dim() - 1);
  Tensor y;
  if (member.centred()) {
    Tensor mean, rstd;
    std::tie(y, mean, rstd) = at::native_layer_norm(s, {x.size(-1)}, to(call.weight, type),
                                                    to(call.bias, type), call.eps);
    results[kMean] = mean.reshape(statistics);
    results[kRstd] = rstd.reshape(statistics);
  } else {
    const Tensor rstd = s.square().mean(-1, /*keepdim=*/true).add_(call.eps).rsqrt_();
    results[kRstd] = rstd.reshape(statistics);
    y = s * rstd;
    if (call.round_first) y = y.to(x.scalar_type()).to(type);
    y = y * scale_of(call.weight, call.weight_offset, y);
  }
  results[kY] = y.to(x.scalar_type()).contiguous();
  return results;
}

tensor_array<4> norm_backward_aten(const norm_member& member, const norm_backward_call& call) {
  const Tensor& x = call.x;
  const bool ds_wanted = call.needs[kDx] || call.needs[kDresidual];
  const at::ScalarType type = call.dsum || call.seed || !member.centred()
                                  ? statistics_dtype(x)
                                  : layer_norm_dtype(x, call.weight, call.bias);
  Tensor ds, dweight, dbias;
  const Tensor dy = call.dy.to(type), s = x.to(type);
  const Tensor rstd = call.rstd.contiguous().unsqueeze(-1);
  if (member.centred()) {
    // On a GPU torch adds up dbias of many rows in memory of dweight's size, which without that one
    // is 0: it writes out of bounds (pytorch/pytorch#193016).
    const bool alone = call.needs[kDbias] && !call.needs[kDweight];
    std::tie(ds, dweight, dbias) = at::native_layer_norm_backward(
        dy, s, {x.size(-1)}, call.mean.contiguous().unsqueeze(-1), rstd, to(call.weight, type),
        to(call.bias, type), {ds_wanted, call.needs[kDweight], call.needs[kDbias] && !alone});
    if (alone) dbias = dy.reshape({-1, x.size(-1)}).sum(0);
  } else {
    const Tensor normal = s * rstd;
    if (ds_wanted) {
      const Tensor g = dy * scale_of(call.weight, call.weight_offset, dy);
      ds = rstd * (g - normal * (g * normal).mean(-1, /*keepdim=*/true));
    }
    if (call.needs[kDweight]) dweight = (dy * normal).reshape({-1, x.size(-1)}).sum(0);
  }
  if (ds_wanted && call.dsum) ds = ds + call.dsum->to(type);
  tensor_array<4> results;
  if (call.needs[kDresidual]) results[kDresidual] = ds.to(x.scalar_type()).contiguous();
  if (call.needs[kDx]) {
    if (call.seed) ds = ds * dropout_factors(x, call.dropout_p, *call.seed, type);
    results[kDx] = ds.to(call.dy.scalar_type()).contiguous();
  }
  if (call.needs[kDweight]) results[kDweight] = dweight.to(call.weight->scalar_type());
  if (call.needs[kDbias]) results[kDbias] = dbias.to(call.bias->scalar_type());
  return results;
}

}  // namespace thunderkittens
