// based_attention_step as a torch op: one token, of which the state and its sums are updated in
// place (based_attention_step.cuh). Not differentiable.
#include <ATen/ATen.h>

#include <cmath>

#include "binding/attention_scale.h"
#include "binding/functional.h"
#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/based_attention/based_attention.h"

namespace thunderkittens {
namespace {

const kernel kBasedAttentionStepKernel("based_attention_step", kBasedAttentionStep);

// What a call was given.
struct step_call {
  const Tensor &q, &k, &v, &state;
  const optional_tensor& sums;  // of a normalised one
  double eps;
  const std::optional<double>& scale;

  double scale_or_usual() const { return attention_scale(scale, q.size(-1)); }
};

// ---- Checks -------------------------------------------------------------------------------------

void check_step(const step_call& c) {
  TORCH_CHECK_VALUE(!c.scale || *c.scale > 0, "based_attention_step: scale must be above 0, got ",
                    c.scale.value_or(0));
  const SymInt width = c.q.sym_size(2), twice = (width + 1) * (width + 2);
  const auto check = [&](const Tensor& t, const char* name) {
    TORCH_CHECK_VALUE((t.sym_size(2) * 2).sym_eq(twice).expect_true(__FILE__, __LINE__),
                      "based_attention_step: ", name, ".size(2) must be ", twice / 2,
                      ", the features of q.size(2) = ", width, ", got ", t.sym_size(2));
  };
  check(c.state, "state");
  if (c.sums) check(*c.sums, "sums");
}

void check_writable(const step_call& c) {
  constexpr std::string_view kWhy = ", since it is updated in place";
  check_no_overlap("based_attention_step", "state", c.state, kWhy);
  if (c.sums) check_no_overlap("based_attention_step", "sums", *c.sums, kWhy);
}

// ---- ATen ---------------------------------------------------------------------------------------

// φ of x, [B, H, D], in the dtype of the state.
Tensor features_of(const step_call& c, const Tensor& given) {
  const Tensor x = given.to(c.state.scalar_type());
  const double scale = c.scale_or_usual();
  const Tensor pairs = at::triu_indices(x.size(2), x.size(2), 0, x.options().dtype(at::kLong)),
               first = pairs.select(0, 0), second = pairs.select(0, 1);
  const Tensor weights = at::full({pairs.size(1)}, scale, x.options())
                             .masked_fill_(first.eq(second), scale * std::sqrt(0.5));
  return at::cat({at::ones({x.size(0), x.size(1), 1}, x.options()), x * std::sqrt(scale),
                  x.index_select(2, first) * x.index_select(2, second) * weights},
                 2);
}

Tensor step_by_aten(const step_call& c) {
  const Tensor of_q = features_of(c, c.q), of_k = features_of(c, c.k);
  c.state.add_(of_k.unsqueeze(-1) * c.v.to(c.state.scalar_type()).unsqueeze(-2));
  // A product and a sum: a matrix product may be of TF32.
  Tensor o = (of_q.unsqueeze(-1) * c.state).sum(-2);
  if (c.sums) {
    c.sums->add_(of_k);
    o.div_((of_q * *c.sums).sum(-1, /*keepdim=*/true).add_(c.eps));
  }
  return o.to(c.v.scalar_type());
}

// ---- The kernel ---------------------------------------------------------------------------------

based_attention_step_problem problem_of(const step_call& c) {
  const auto strides_of = [](const Tensor& t) {
    return based_attention_step_problem::strides{stride_of(t, 0), stride_of(t, 1), stride_of(t, 2)};
  };
  return {
      .batch = c.q.size(0),
      .heads = c.q.size(1),
      .key_width = c.q.size(2),
      .value_width = c.v.size(2),
      .q_strides = strides_of(c.q),
      .k_strides = strides_of(c.k),
      .v_strides = strides_of(c.v),
      .state_stride = stride_of(c.state, 0),
      .state_head_stride = stride_of(c.state, 1),
      .state_row_stride = stride_of(c.state, 2),
      .sums_stride = c.sums ? stride_of(*c.sums, 0) : 0,
      .sums_head_stride = c.sums ? stride_of(*c.sums, 1) : 0,
      .scale = c.scale_or_usual(),
      .eps = c.eps,
      .normalize = c.sums.has_value(),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
}

std::string why_torch(const step_call& c, const based_attention_step_problem& problem) {
  if (c.q.scalar_type() == at::kDouble) return "float64 is computed by torch";
  const auto has_gaps = [](const Tensor& t) { return t.size(-1) > 1 && t.stride(-1) != 1; };
  if (has_gaps(c.state) || (c.sums && has_gaps(*c.sums))) {
    return "a state whose last stride is not 1 is updated by torch";
  }
  return why_unsupported(problem);
}

Tensor step_by_kernel(const decision& d, const based_attention_step_problem& problem,
                      const step_call& c) {
  const Tensor o = empty_contiguous(c.v);
  launch(d, problem,
         based_attention_step_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .o = o.mutable_data_ptr(),
             .state = c.state.mutable_data_ptr<float>(),
             .sums = c.sums ? c.sums->mutable_data_ptr<float>() : nullptr,
         });
  return o;
}

// o; undefined where the caller only asks.
Tensor compute_step(const step_call& c) {
  check_writable(c);
  const bool is_empty = c.q.size(0) == 0 || c.q.size(1) == 0;
  if (is_empty && explaining() == nullptr) return empty_contiguous(c.v);
  const based_attention_step_problem problem = problem_of(c);
  const decision d = decide(kBasedAttentionStepKernel, c.q.device(), why_torch(c, problem));
  if (d.explained) return {};
  return d.on == nullptr ? step_by_aten(c) : step_by_kernel(d, problem, c);
}

// ---- The op -------------------------------------------------------------------------------------

struct based_attention_step {
  static constexpr const char* name = "based_attention_step";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr argument_list arguments{
      tensor("q", dtype_rule::floating, "B,H,D"),
      tensor("k", dtype_rule::same, "B,H,D"),
      tensor("v", dtype_rule::same, "B,H,V"),
      tensor("state", dtype_rule::statistics, "B,H,Phi,V"),
      optional(tensor("sums", dtype_rule::statistics, "B,H,Phi")),
      number("eps", 0),
      optional(number("scale")).otherwise("None"),
  };
  static constexpr result_list results{like("o", "v")};
  static constexpr size_t kWritten = 2, kFirstWritten = 3;
  static constexpr std::string_view kNoGradient =
      "the state is updated in place: call it under torch.no_grad(), or based_attention with an "
      "initial_state";
  static constexpr bool kCountsVersions = true;

  static void check_options(const auto&... args) { check_step({args...}); }
  static tensor_array<1> compute(const auto&... args) { return {compute_step({args...})}; }
};

using based_attention_step_functional = functional_form<based_attention_step>;

const register_ops<based_attention_step, based_attention_step_functional>
    registered_based_attention_step;

}  // namespace
}  // namespace thunderkittens
