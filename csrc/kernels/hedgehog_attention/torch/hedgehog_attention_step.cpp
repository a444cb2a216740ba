// hedgehog_attention_step as a torch op: one token, its state updated in place
// (hedgehog_attention_step.cuh). Not differentiable.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "binding/functional.h"
#include "binding/launch.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/hedgehog_attention/hedgehog_attention.h"

namespace thunderkittens {
namespace {

const kernel kHedgehogAttentionStepKernel("hedgehog_attention_step", kHedgehogAttentionStep);

struct step_call {
  Tensor k_cache, v_cache, kv_state, k_state, length, q, k, v, q_map, k_map, alpha, beta;
};

// ---- Checks -------------------------------------------------------------------------------------

void check_sizes(const step_call& c) {
  const auto check = [](const char* name, int dim, const SymInt& got, const SymInt& want,
                        const char* what) {
    TORCH_CHECK_VALUE(got.sym_eq(want).expect_true(__FILE__, __LINE__),
                      "hedgehog_attention_step: ", name, ".size(", dim, ") must be ", want, " (",
                      what, "), got ", got);
  };
  check("kv_state", 2, c.kv_state.sym_size(2), 2 * c.q_map.sym_size(2), "2 · q_map.size(2)");
  check("k_cache", 1, c.k_cache.sym_size(1), kHedgehogBlock, "the window");
}

void check_writable(const step_call& c) {
  const std::pair<const char*, const Tensor*> written[] = {{"kv_state", &c.kv_state},
                                                           {"k_state", &c.k_state},
                                                           {"k_cache", &c.k_cache},
                                                           {"v_cache", &c.v_cache},
                                                           {"length", &c.length}};
  for (const auto& [name, t] : written) {
    check_no_overlap("hedgehog_attention_step", name, *t, ", since it is written in place");
  }
}

// ---- ATen ---------------------------------------------------------------------------------------

Tensor step_by_aten(const step_call& c) {
  const at::ScalarType type = c.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor length = c.length.to(at::kLong);
  const auto row = [&](const Tensor& cache) {
    return (length % kHedgehogBlock)
        .view({-1, 1, 1, 1})
        .expand({-1, 1, cache.size(2), cache.size(3)});
  };
  const auto features = [&](const Tensor& x, const Tensor& map) {  // [B, H, D] to [B, H, 2F]
    const Tensor logits = at::matmul(x.to(type).unsqueeze(2), map.to(type)).squeeze(2);
    return at::cat({logits.softmax(-1), logits.neg().softmax(-1)}, -1);
  };
  const Tensor leaves = (length >= kHedgehogBlock).view({-1, 1, 1});
  const Tensor k_leaving = c.k_cache.gather(1, row(c.k_cache)).squeeze(1),
               v_leaving = c.v_cache.gather(1, row(c.v_cache)).squeeze(1);
  const Tensor entering = features(k_leaving, c.k_map).masked_fill(leaves.logical_not(), 0);
  c.k_state.add_(entering);
  c.kv_state.add_(entering.unsqueeze(-1) * v_leaving.to(type).unsqueeze(2));
  c.k_cache.scatter_(1, row(c.k_cache), c.k.unsqueeze(1));
  c.v_cache.scatter_(1, row(c.v_cache), c.v.unsqueeze(1));

  const Tensor exists = at::arange(kHedgehogBlock, length.options()) <= length.unsqueeze(1);
  const Tensor keys = c.k_cache.to(type).permute({0, 2, 3, 1}),  // [B, H, D, 64]
      values = c.v_cache.to(type).transpose(1, 2);               // [B, H, 64, E]
  const Tensor scores = (at::matmul(c.q.to(type).unsqueeze(2), keys) / std::sqrt(c.q.size(2)))
                            .masked_fill(exists.logical_not().unsqueeze(1).unsqueeze(1),
                                         -std::numeric_limits<double>::infinity());
  const auto of_heads = [](const Tensor& t) { return t.view({-1, 1, 1}); };
  const Tensor window =
      of_heads(c.beta) * at::exp(scores - scores.amax(-1, /*keepdim=*/true));  // [B, H, 1, 64]
  const Tensor of_q = of_heads(c.alpha) * features(c.q, c.q_map).unsqueeze(2);
  const Tensor over = at::matmul(window, values) + at::matmul(of_q, c.kv_state),
               under = window.sum(-1, /*keepdim=*/true) + at::matmul(of_q, c.k_state.unsqueeze(-1));
  c.length.add_(1);
  return (over / under).squeeze(2).to(c.v.scalar_type()).contiguous();
}

// ---- The kernel ---------------------------------------------------------------------------------

std::string why_torch(const step_call& c, const hedgehog_attention_step_problem& problem) {
  if (c.q.scalar_type() == at::kDouble) return "float64 is computed by torch";
  for (const Tensor* t : {&c.kv_state, &c.k_state, &c.k_cache, &c.v_cache, &c.length}) {
    if (!t->is_contiguous()) return "states that are not contiguous are updated by torch";
  }
  return why_unsupported(problem);
}

Tensor step_by_kernel(const decision& d, const hedgehog_attention_step_problem& problem,
                      const step_call& c) {
  const Tensor y = at::empty({c.v.size(0), c.v.size(1), c.v.size(2)}, c.v.options());
  const Tensor q_map = c.q_map.contiguous(), k_map = c.k_map.contiguous(),
               alpha = c.alpha.contiguous(), beta = c.beta.contiguous(),
               length = c.length.to(at::kLong);
  launch(d, problem,
         hedgehog_attention_step_tensors{
             .kv_state = c.kv_state.mutable_data_ptr<float>(),
             .k_state = c.k_state.mutable_data_ptr<float>(),
             .k_cache = c.k_cache.mutable_data_ptr(),
             .v_cache = c.v_cache.mutable_data_ptr(),
             .length = length.const_data_ptr<int64_t>(),
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .q_map = q_map.const_data_ptr(),
             .k_map = k_map.const_data_ptr(),
             .alpha = alpha.const_data_ptr<float>(),
             .beta = beta.const_data_ptr<float>(),
             .y = y.mutable_data_ptr(),
         });
  c.length.add_(1);  // not by the kernel, whose blocks all read it
  return y;
}

Tensor compute_step(step_call c) {
  check_writable(c);
  if (c.q.size(0) == 0 || c.q.size(1) == 0) {
    if (explaining() == nullptr) {
      c.length.add_(1);
      return at::empty({c.v.size(0), c.v.size(1), c.v.size(2)}, c.v.options());
    }
  }
  for (Tensor* t : {&c.q, &c.k, &c.v}) {
    if (t->size(2) > 1 && t->stride(2) != 1) *t = t->contiguous();
  }
  const auto strides_of = [](const Tensor& t) {
    return hedgehog_attention_step_problem::strides{t.stride(0), t.stride(1)};
  };
  const hedgehog_attention_step_problem problem{
      .batch = c.q.size(0),
      .heads = c.q.size(1),
      .head_dim = c.q.size(2),
      .value_dim = c.v.size(2),
      .features = c.q_map.size(2),
      .q_strides = strides_of(c.q),
      .k_strides = strides_of(c.k),
      .v_strides = strides_of(c.v),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
  const decision d = decide(kHedgehogAttentionStepKernel, c.q.device(), why_torch(c, problem));
  if (d.explained) return {};
  return d.on == nullptr ? step_by_aten(c) : step_by_kernel(d, problem, c);
}

// ---- The op -------------------------------------------------------------------------------------

struct hedgehog_attention_step {
  static constexpr const char* name = "hedgehog_attention_step";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr argument_list arguments{
      tensor("k_cache", dtype_rule::floating, "B,W64,H,D"),
      tensor("v_cache", dtype_rule::same, "B,W64,H,E"),
      tensor("kv_state", dtype_rule::statistics, "B,H,F2,E"),
      tensor("k_state", dtype_rule::statistics, "B,H,F2"),
      tensor("length", dtype_rule::index, "B"),
      tensor("q", dtype_rule::same, "B,H,D"),
      tensor("k", dtype_rule::same, "B,H,D"),
      tensor("v", dtype_rule::same, "B,H,E"),
      tensor("q_map", dtype_rule::same, "H,D,F"),
      tensor("k_map", dtype_rule::same, "H,D,F"),
      tensor("alpha", dtype_rule::statistics, "H"),
      tensor("beta", dtype_rule::statistics, "H"),
  };
  static constexpr result_list results{like("y", "v")};
  static constexpr size_t kWritten = 5;
  static constexpr std::string_view kNoGradient =
      "the state is updated in place: call it under torch.no_grad(), or hedgehog_attention with an "
      "initial_state";
  static constexpr bool kCountsVersions = true;

  static void check_options(const auto&... args) { check_sizes({args...}); }
  static tensor_array<1> compute(const auto&... args) { return {compute_step({args...})}; }
};

using hedgehog_attention_step_functional = functional_form<hedgehog_attention_step>;

const register_ops<hedgehog_attention_step, hedgehog_attention_step_functional>
    registered_hedgehog_attention_step;

}  // namespace
}  // namespace thunderkittens
