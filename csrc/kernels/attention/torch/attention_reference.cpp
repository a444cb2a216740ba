// The formula of attention in ATen ops, which differentiate themselves.
//
//   s = scale · q kᵀ;  s = softcap · tanh(s / softcap);  masked;  o = softmax(s) v
//
// Query head h reads key head h // (Hq / Hk). The diagonal of row i is i + Sk − Sq, with seqused_k
// i + seqused_k − Sq. A sink is one
// more logit of each row, without a value. A row with no key gives 0, and lse = its sink (−inf
// without).
#include "kernels/attention/torch/attention_reference.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <vector>

#include "binding/dispatch.h"
#include "kernels/attention/torch/attention_masks.hpp"
#include "kernels/attention/torch/attention_operands.hpp"
#include "kittens/host/launchers.h"

namespace thunderkittens {
namespace {

// ---- The formula --------------------------------------------------------------------------------

// → o [B, Sq, Hq, Dv], lse [B, Hq, Sq].
tensor_array<2> formula(const masked_call& masked) {
  const attention_call& c = masked.call;
  const at::ScalarType type = statistics_dtype(c.q);
  const head_layout layout(c);
  const double scale = attention_scale(c.scale, c.q.sym_size(3).guard_int(__FILE__, __LINE__));
  Tensor scores =
      at::matmul(layout.queries(c.q.to(type)), layout.key_rows(c.k.to(type)).transpose(1, 2)) *
      scale;
  if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
  scores = layout.by_group(scores);
  if (masked.seen) {
    const Tensor hidden = masked.seen->logical_not();
    scores = scores.masked_fill(hidden.dim() == 3 ? hidden.unsqueeze(1).unsqueeze(1) : hidden,
                                -kInfinity);
  }

  // The sink is one more key without a value; without sinks its logit is −inf, which adds nothing.
  const auto& [batch, key_heads, group, rows, keys] = layout;
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

  const Tensor o = at::matmul(probabilities.reshape_symint({layout.count(), group * rows, keys}),
                              layout.key_rows(c.v.to(type)));
  const Tensor lse = (at::log(divisor) + anchor).masked_fill(no_key, -kInfinity);
  return {layout.as_queries(o).to(c.q.scalar_type()).contiguous(),
          lse.reshape_symint({batch, key_heads * group, rows})};
}

// ---- Packed sequences ---------------------------------------------------------------------------

tensor_array<2> packed_by_mask(const attention_call& c) {
  const masked_call one(c);
  // A token of no sequence may hold anything: where autograd differentiates this, 0 · NaN must not
  // reach the products from such a row's own gradient either.
  auto [o, lse] = formula(one);
  return {o.squeeze(0).masked_fill(one.stray_rows, 0), lse.squeeze(0)};
}

tensor_array<2> packed_by_sequence(const attention_call& c) {
  std::vector<Tensor> outputs, sums;
  for (const packed_sequence& sequence : packed_sequences(c)) {
    auto [o, lse] = formula(masked_call(sequence.of(c)));
    outputs.push_back(o.squeeze(0));
    sums.push_back(lse.squeeze(0));
  }
  return {at::cat(outputs), at::cat(sums, /*dim=*/-1)};
}

// ---- Torch's fused attention --------------------------------------------------------------------

// Causal rows behind keys that all of them see, as the next tokens of a prompt have. On a CPU
// torch's fused attention takes a mask (512 rows of 4 heads, float32, one core: 1,024 keys in 6.4
// ms, by the formula 28; 3,500 in 24, by the formula 39). On a GPU not all its kernels do.
// Gradients are the formula's.
bool fused_by_mask(const attention_call& c) {
  return c.causal && c.q.device().is_cpu() && !is_stand_in(c.q) &&
         !records_gradient(c.q, c.k, c.v) && TORCH_GUARD_OR_FALSE(c.q.sym_size(1).sym_gt(1)) &&
         TORCH_GUARD_OR_FALSE(c.q.sym_size(1).sym_lt(c.k.sym_size(1)));
}

// The case that torch's own fused attention computes: [B, H, S, D], causal aligned to the top left.
// Its kernels take the maximum before they scale, so a scale below 0 overflows there (NaN with
// torch 2.11 on an H200).
bool plain(const attention_call& c) {
  if (!c.is_plain() || c.scale.value_or(1.0) < 0) return false;
  const SymInt rows = c.q.sym_size(1), keys = c.k.sym_size(1);
  if (TORCH_GUARD_OR_FALSE(c.q.sym_numel().sym_eq(0)) ||
      TORCH_GUARD_OR_FALSE(c.v.sym_numel().sym_eq(0))) {
    return false;
  }
  return !c.causal || TORCH_GUARD_OR_FALSE(rows.sym_eq(keys)) ||
         TORCH_GUARD_OR_FALSE(rows.sym_eq(1)) || fused_by_mask(c);
}

// For one row, which is decoding, torch's first choice on a GPU is cuDNN, and that makes a new plan
// for each number of keys: 25 ms a token, measured on an H200. What FlashAttention cannot take, or
// the user has switched off, is left to torch's choice.
bool decodes_by_flash(const Tensor& q, const Tensor& k, const Tensor& v) {
  return at::globalContext().userEnabledFlashSDP() &&
         TORCH_GUARD_OR_FALSE(q.sym_size(1).sym_eq(1)) && flash_takes(q, k, v);
}

// What o's gradient is read through. (Torch makes it contiguous, and keeps its address.)
struct readable_by_torch final : torch::autograd::FunctionPreHook {
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list list = gradients;
    for (Tensor& t : list) {
      if (t.defined()) t = operand_of_torch(t);
    }
    return list;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
};

Tensor fused(const attention_call& c) {
  const bool one_row = TORCH_GUARD_OR_FALSE(c.q.sym_size(1).sym_eq(1));  // sees every key
  const optional_tensor mask = fused_by_mask(c) ? masked_call(c).seen : std::nullopt;
  const bool grouped = !TORCH_GUARD_OR_FALSE(c.q.sym_size(2).sym_eq(c.k.sym_size(2)));
  const Tensor rows = operand_of_torch(c.q), keys = operand_of_torch(c.k),
               values = operand_of_torch(c.v);
  const Tensor q = rows.transpose(1, 2), k = keys.transpose(1, 2), v = values.transpose(1, 2);
  const Tensor heads = decodes_by_flash(rows, keys, values)
                           ? std::get<0>(at::_scaled_dot_product_flash_attention(
                                 q, k, v, /*dropout_p=*/0.0, /*is_causal=*/false,
                                 /*return_debug_mask=*/false, c.scale))
                           : at::scaled_dot_product_attention(
                                 q, k, v, mask, /*dropout_p=*/0.0,
                                 /*is_causal=*/c.causal && !one_row && !mask, c.scale, grouped);
  const Tensor o = heads.transpose(1, 2).contiguous();
  if (o.requires_grad() && o.is_cuda() && !is_stand_in(o)) {
    o.grad_fn()->add_pre_hook(std::make_unique<readable_by_torch>());
  }
  return o;
}

}  // namespace

bool is_stand_in(const Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kStandIns({DispatchKey::Python, DispatchKey::Functionalize,
                                           DispatchKey::FuncTorchBatched,
                                           DispatchKey::FuncTorchGradWrapper});
  return t.key_set().has_any(kStandIns);
}

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

tensor_array<2> attention_by_aten(const attention_call& c) {
  if (!c.wants_lse && plain(c)) return {fused(c), Tensor()};
  if (!c.cu_seqlens_q) return formula(masked_call(c));
  return readable_sequences(c) ? packed_by_sequence(c) : packed_by_mask(c);
}

}  // namespace thunderkittens
