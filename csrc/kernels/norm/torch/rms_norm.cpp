// rms_norm as a torch op: schema, checks, outputs, backends, autograd, fakes.
//
//   y = x · rstd · (weight + weight_offset),   rstd = 1 / sqrt(mean(x²) + eps),   over the last
//   dimension
//
// Three ops, as for layer_norm: `rms_norm` is the public one; `rms_norm_forward` also returns rstd
// [x.shape[:-1]] in float32 (float64 for float64), for `rms_norm_backward`.
#include <torch/library.h>

#include "binding/arguments.h"
#include "binding/autograd.h"
#include "binding/op.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {
namespace {

using two_tensors = std::tuple<Tensor, Tensor>;

constexpr arguments kForwardArguments({
    tensor("x", dtype_rule::floating, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    number("eps", 0.0),
    number("weight_offset"),
});
constexpr arguments kBackwardArguments({
    tensor("dy", dtype_rule::floating, "*,N"),
    tensor("x", dtype_rule::same, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    tensor("rstd", dtype_rule::statistics, "*"),
    number("weight_offset"),
});
constexpr argument_table kForwardTable = kForwardArguments.table("rms_norm");
constexpr argument_table kBackwardTable = kBackwardArguments.table("rms_norm_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kForwardKernel("rms_norm", kRmsNormForward);
const kernel kBackwardKernel("rms_norm_backward", kRmsNormBackward);

const norm_member kMember{norm_op::rms_norm, kForwardKernel, kBackwardKernel, /*centred=*/false};

// ---- Ops, and Meta: shapes, dtypes and strides, also of symbolic sizes --------------------------

norm_call forward_call(const Tensor& x, const optional_tensor& weight, double eps, double offset,
                       std::string_view casting) {
  check(kForwardTable, {x, weight, eps, offset});
  return {.x = x,
          .residual = kNoTensor,
          .weight = weight,
          .bias = kNoTensor,
          .eps = eps,
          .weight_offset = offset,
          .round_first = rounds_first("rms_norm", casting)};
}

Tensor rms_norm(const Tensor& x, const optional_tensor& weight, double eps, double offset,
                std::string_view casting) {
  return norm_forward(kMember, forward_call(x, weight, eps, offset, casting), false).y;
}
Tensor rms_norm_meta(const Tensor& x, const optional_tensor& weight, double eps, double offset,
                     std::string_view casting) {
  return empty_results(kMember, forward_call(x, weight, eps, offset, casting), false).y;
}

two_tensors rms_norm_forward(const Tensor& x, const optional_tensor& weight, double eps,
                             double offset, std::string_view casting) {
  const auto results = norm_forward(kMember, forward_call(x, weight, eps, offset, casting), true);
  return {results.y, results.rstd};
}
two_tensors rms_norm_forward_meta(const Tensor& x, const optional_tensor& weight, double eps,
                                  double offset, std::string_view casting) {
  const auto results = empty_results(kMember, forward_call(x, weight, eps, offset, casting), true);
  return {results.y, results.rstd};
}

norm_backward_call backward_call(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                                 const Tensor& rstd, double offset, std::array<bool, 2> needs) {
  check(kBackwardTable, {dy, x, weight, rstd, offset});
  TORCH_CHECK_VALUE(
      !needs[1] || weight,
      "rms_norm_backward: weight must be given when its gradient is needed, got None");
  return {.dy = dy,
          .dsum = kNoTensor,
          .x = x,
          .weight = weight,
          .bias = kNoTensor,
          .mean = kUndefined,
          .rstd = rstd,
          .needs = {needs[0], /*residual*/ false, needs[1], /*bias*/ false},
          .weight_offset = offset};
}

two_tensors as_results(const norm_gradients& g, const Tensor& x) {
  return {or_none(g[kDx], x), or_none(g[kDweight], x)};
}

two_tensors rms_norm_backward(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                              const Tensor& rstd, double offset, std::array<bool, 2> needs) {
  return as_results(norm_backward(kMember, backward_call(dy, x, weight, rstd, offset, needs)), x);
}
two_tensors rms_norm_backward_meta(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                                   const Tensor& rstd, double offset, std::array<bool, 2> needs) {
  return as_results(empty_gradients(backward_call(dy, x, weight, rstd, offset, needs)), x);
}

// ---- Autograd -----------------------------------------------------------------------------------

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns y, and with Statistics also rstd, which carries no gradient.
template <bool Statistics>
struct differentiable_rms_norm : torch::autograd::Function<differentiable_rms_norm<Statistics>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const optional_tensor& weight,
                               double eps, double offset, std::string_view casting) {
    static const auto op = find_op("thunderkittens::rms_norm_forward", rms_norm_forward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [y, rstd] = op.call(x, weight, eps, offset, casting);
    ctx->save_for_backward({x, weight.value_or(Tensor()), rstd});
    ctx->set_materialize_grads(false);
    if (offset != 0.0) ctx->saved_data["offset"] = offset;
    save_backend(ctx);
    if constexpr (!Statistics) return {y};
    ctx->mark_non_differentiable({rstd});
    return {y, rstd};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    static const auto op = find_op("thunderkittens::rms_norm_backward", rms_norm_backward);
    const Tensor& dy = gradients[0];
    variable_list results(5);
    if (!dy.defined()) return results;
    const variable_list saved = ctx->get_saved_variables();
    const optional_tensor weight = saved[1].defined() ? optional_tensor(saved[1]) : std::nullopt;
    const std::array<bool, 2> needs = {ctx->needs_input_grad(0),
                                       weight && ctx->needs_input_grad(1)};
    const auto offset = ctx->saved_data.find("offset");
    const backend_scope scope(saved_backend(ctx));
    auto [dx, dweight] =
        op.call(dy, saved[0], weight, saved[2],
                offset == ctx->saved_data.end() ? 0.0 : offset->second.toDouble(), needs);
    if (needs[0]) results[0] = dx;
    if (needs[1]) results[1] = dweight;
    return results;
  }
};

Tensor rms_norm_autograd(c10::DispatchKeySet keys, const Tensor& x, const optional_tensor& weight,
                         double eps, double offset, std::string_view casting) {
  check_dense(kForwardTable, {x, weight, eps, offset});
  refuse_forward_mode("rms_norm", x, weight);
  if (records_gradient(x, weight)) {
    return differentiable_rms_norm<false>::apply(x, weight, eps, offset, casting)[0];
  }
  static const auto op = find_op("thunderkittens::rms_norm", rms_norm);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, x, weight, eps, offset, casting);
}

two_tensors rms_norm_forward_autograd(const Tensor& x, const optional_tensor& weight, double eps,
                                      double offset, std::string_view casting) {
  check_dense(kForwardTable, {x, weight, eps, offset});
  refuse_forward_mode("rms_norm", x, weight);
  const auto outputs = differentiable_rms_norm<true>::apply(x, weight, eps, offset, casting);
  return {outputs[0], outputs[1]};
}

two_tensors rms_norm_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy, const Tensor& x,
                                       const optional_tensor& weight, const Tensor& rstd,
                                       double offset, std::array<bool, 2> needs) {
  check_dense(kBackwardTable, {dy, x, weight, rstd, offset});
  static const auto op = find_op("thunderkittens::rms_norm_backward", rms_norm_backward);
  return once_differentiable("rms_norm", op, keys, records_gradient(dy, x, weight), dy, x, weight,
                             rstd, offset, needs);
}

Tensor rms_norm_plain(const Tensor& x, const optional_tensor& weight, double eps) {
  static const auto op = find_op("thunderkittens::rms_norm", rms_norm);
  return op.call(x, weight, eps, /*weight_offset=*/0.0, "llama");
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  define_short_form(m, "rms_norm.plain", "(Tensor x, Tensor? weight, float eps) -> Tensor",
                    rms_norm_plain);
  m.def(
      "rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6, float weight_offset=0.0, "
      "str casting=\"llama\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "rms_norm_forward(Tensor x, Tensor? weight, float eps, float weight_offset, str casting) "
      "-> (Tensor y, Tensor rstd)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "rms_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, float weight_offset, "
      "bool[2] needs) -> (Tensor dx, Tensor dweight)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device, as for layer_norm.
void every_op(torch::Library& m) {
  m.impl("rms_norm", rms_norm);
  m.impl("rms_norm_forward", rms_norm_forward);
  m.impl("rms_norm_backward", rms_norm_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("rms_norm", rms_norm_meta);
  m.impl("rms_norm_forward", rms_norm_forward_meta);
  m.impl("rms_norm_backward", rms_norm_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("rms_norm", rms_norm_autograd);
  m.impl("rms_norm_forward", rms_norm_forward_autograd);
  m.impl("rms_norm_backward", rms_norm_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
