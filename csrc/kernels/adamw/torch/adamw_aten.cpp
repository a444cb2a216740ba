// AdamW by ATen: the kernel's formula with the kernel's random numbers, and nothing read back.
#include <cmath>

#include "binding/philox.h"
#include "kernels/adamw/torch/adamw_update.hpp"

namespace thunderkittens::adamw_torch {
namespace {

constexpr int64_t kWord = 0xffffffff;

// Philox 4x32 (csrc/kernels/adamw/stochastic_rounding.cuh) for elements 0 … count − 1 of a
// parameter in a step, `step` being []: a word each.
Tensor random_words(int64_t count, int64_t seed, const Tensor& step, int64_t parameter) {
  const auto options = step.options().dtype(at::kLong);
  return philox_words<int64_t>(count, step.to(at::kLong).view({1}),
                               at::full({1}, parameter & kWord, options),
                               {seed & kWord, seed >> 32 & kWord});
}

// x, of float32, as numbers of bfloat16, by the lower halves of the words.
Tensor round_stochastically(const Tensor& x, const Tensor& words) {
  const Tensor flat = x.contiguous().flatten(), bits = flat.view(at::kInt).to(at::kLong);
  const Tensor moved = (bits + words.bitwise_and(0xffff)).bitwise_and(0xffff0000);
  // (An int is made of a word beyond 2³¹ by taking 2³² off.)
  const Tensor wrapped = at::where(moved > 0x7fffffff, moved - (kWord + 1), moved);
  const Tensor rounded = wrapped.to(at::kInt).view(at::kFloat);
  return at::where(flat.isfinite(), rounded, flat).view(x.sizes());
}

// A parameter's tensors in the order of its elements in memory, the order in which they are
// numbered: what stochastic rounding goes by.
Tensor in_memory_order(const Tensor& t, const Tensor& like) {
  if (!like.is_non_overlapping_and_dense() || like.is_contiguous()) return t.contiguous();
  return at::empty_like(like, t.options()).copy_(t).as_strided({t.numel()}, {1});
}

// One element as []. (view({}) would be a view as another dtype.)
Tensor as_scalar(const Tensor& t) { return t.reshape(at::IntArrayRef()); }

// What all elements of a parameter have in common, as [] of `type`.
struct scalars {
  Tensor step, lr, factor, correction1, correction2;

  scalars(const update_call& c, size_t i, at::ScalarType type) {
    const update_options& o = c.options;
    const auto options = c.params[i].options().dtype(at::kDouble);
    step = c.steps.empty() ? at::full({}, o.step, options) : c.steps[i].to(at::kDouble) + 1;
    lr = c.lr ? as_scalar(c.lr->to(type)) : at::full({}, o.lr, options.dtype(type));
    correction1 = (-1 / at::expm1(step * std::log(o.beta1))).to(type);
    correction2 = (-1 / at::expm1(step * std::log(o.beta2))).sqrt().to(type);
    factor = at::full({}, o.maximize ? -1.0 : 1.0, options.dtype(type));
    if (c.grad_norm && o.max_norm) {
      const Tensor clip = *o.max_norm / (as_scalar(c.grad_norm->to(type)) + 1e-6);
      factor = factor * clip.clamp_max(1.0);
    }
  }
};

// Whether the step is taken, as a [] of bool.
Tensor is_taken(const update_call& c) { return as_scalar(c.grad_norm->isfinite()); }
bool may_skip(const update_call& c) { return c.grad_norm && c.options.skip_nonfinite; }

}  // namespace

void update_by_aten(const update_call& c, size_t i) {
  const update_options& o = c.options;
  const Tensor &param = c.params[i], &exp_avg = c.exp_avgs[i], &exp_avg_sq = c.exp_avg_sqs[i];
  const bool has_master = !c.masters.empty();
  const Tensor weight = has_master ? c.masters[i] : param;
  const at::ScalarType type = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const scalars s(c, i, type);
  const Tensor g = c.grads[i].to(type) * s.factor;
  Tensor m = exp_avg.to(type), v = exp_avg_sq.to(type), w = weight.to(type);
  m = m + (g - m) * (1 - o.beta1);
  v = v * o.beta2 + g * g * (1 - o.beta2);
  const Tensor direction = m * s.correction1 / (v.sqrt() * s.correction2 + o.eps);
  w = w - s.lr * (direction + w * o.weight_decay);

  const auto write = [&](const Tensor& to, const Tensor& value) {
    to.copy_(may_skip(c) ? at::where(is_taken(c), value.to(to.scalar_type()), to) : value);
  };
  const auto rounded = [&](const Tensor& to, const Tensor& value, int set, int shift) {
    if (!o.stochastic_rounding || to.scalar_type() != at::kBFloat16) return value;
    const int64_t number = c.numbers.empty() ? 0 : c.numbers[i];
    const Tensor words = random_words(to.numel(), o.seed, s.step, 2 * number + set);
    const Tensor flat = in_memory_order(value, param).flatten();
    const Tensor result = round_stochastically(flat, words.__rshift__(shift));
    if (param.is_contiguous() || !param.is_non_overlapping_and_dense()) {
      return result.view(value.sizes());
    }
    return result.as_strided(param.sizes(), param.strides());
  };
  write(exp_avg, rounded(exp_avg, m, 0, 16));
  write(exp_avg_sq, rounded(exp_avg_sq, v, 1, 0));
  write(weight, rounded(weight, w, 0, 0));
  if (has_master) write(param, w);
  if (c.steps.empty()) return;
  may_skip(c) ? c.steps[i].add_(is_taken(c)) : c.steps[i].add_(1);
}

void count_skipped(const update_call& c) {
  if (c.skipped && may_skip(c)) c.skipped->add_(is_taken(c).logical_not());
}

}  // namespace thunderkittens::adamw_torch
