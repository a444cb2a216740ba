// layer_norm as a torch op: schema, checks, outputs, backends, autograd, fakes.
//
//   y = (x − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var + eps),   over the last dimension
//
// Three ops: `layer_norm` is the public one and keeps no statistics; `layer_norm_forward` also
// returns mean and rstd [x.shape[:-1]] in float32 (float64 for float64), for `layer_norm_backward`.
// No autocast rule: mixed dtypes (float32 weights with 16-bit x) are computed in float32 and
// rounded once.
#include <torch/library.h>

#include "binding/arguments.h"
#include "binding/autograd.h"
#include "binding/op.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {
namespace {

using three_tensors = std::tuple<Tensor, Tensor, Tensor>;

constexpr arguments kForwardArguments({
    tensor("x", dtype_rule::floating, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    optional(tensor("bias", dtype_rule::same_or_float32, "N")),
    number("eps", 0.0),
});
constexpr arguments kBackwardArguments({
    tensor("dy", dtype_rule::floating, "*,N"),
    tensor("x", dtype_rule::same, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    optional(tensor("bias", dtype_rule::same_or_float32, "N")),
    tensor("mean", dtype_rule::statistics, "*"),
    tensor("rstd", dtype_rule::statistics, "*"),
});
constexpr argument_table kForwardTable = kForwardArguments.table("layer_norm");
constexpr argument_table kBackwardTable = kBackwardArguments.table("layer_norm_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kForwardKernel("layer_norm", kLayerNormForward);
const kernel kBackwardKernel("layer_norm_backward", kLayerNormBackward);

const norm_member kMember{norm_op::layer_norm, kForwardKernel, kBackwardKernel, /*centred=*/true};

// ---- Ops ----------------------------------------------------------------------------------------

norm_results compute_forward(const Tensor& x, const optional_tensor& weight,
                             const optional_tensor& bias, double eps, bool statistics) {
  check(kForwardTable, {x, weight, bias, eps});
  return norm_forward(kMember, {x, kNoTensor, weight, bias, eps}, statistics);
}

Tensor layer_norm(const Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                  double eps) {
  return compute_forward(x, weight, bias, eps, /*statistics=*/false).y;
}

three_tensors layer_norm_forward(const Tensor& x, const optional_tensor& weight,
                                 const optional_tensor& bias, double eps) {
  const norm_results results = compute_forward(x, weight, bias, eps, /*statistics=*/true);
  return {results.y, results.mean, results.rstd};
}

void check_backward(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                    const optional_tensor& bias, const Tensor& mean, const Tensor& rstd,
                    std::array<bool, 3> needs) {
  check(kBackwardTable, {dy, x, weight, bias, mean, rstd});
  TORCH_CHECK_VALUE(!needs[1] || weight,
                    "layer_norm_backward: weight must be given when its gradient is "
                    "needed, got None");
  TORCH_CHECK_VALUE(!needs[2] || bias,
                    "layer_norm_backward: bias must be given when its gradient is "
                    "needed, got None");
}

norm_backward_call backward_call(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                                 const optional_tensor& bias, const Tensor& mean,
                                 const Tensor& rstd, std::array<bool, 3> needs) {
  return {.dy = dy,
          .dsum = kNoTensor,
          .x = x,
          .weight = weight,
          .bias = bias,
          .mean = mean,
          .rstd = rstd,
          .needs = {needs[0], /*residual*/ false, needs[1], needs[2]}};
}

three_tensors as_results(const norm_gradients& g, const Tensor& x) {
  return {or_none(g[kDx], x), or_none(g[kDweight], x), or_none(g[kDbias], x)};
}

three_tensors layer_norm_backward(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                                  const optional_tensor& bias, const Tensor& mean,
                                  const Tensor& rstd, std::array<bool, 3> needs) {
  check_backward(dy, x, weight, bias, mean, rstd, needs);
  return as_results(norm_backward(kMember, backward_call(dy, x, weight, bias, mean, rstd, needs)),
                    x);
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor layer_norm_meta(const Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                       double eps) {
  check(kForwardTable, {x, weight, bias, eps});
  return empty_results(kMember, {x, kNoTensor, weight, bias, eps}, /*statistics=*/false).y;
}

three_tensors layer_norm_forward_meta(const Tensor& x, const optional_tensor& weight,
                                      const optional_tensor& bias, double eps) {
  check(kForwardTable, {x, weight, bias, eps});
  const norm_results results = empty_results(kMember, {x, kNoTensor, weight, bias, eps}, true);
  return {results.y, results.mean, results.rstd};
}

three_tensors layer_norm_backward_meta(const Tensor& dy, const Tensor& x,
                                       const optional_tensor& weight, const optional_tensor& bias,
                                       const Tensor& mean, const Tensor& rstd,
                                       std::array<bool, 3> needs) {
  check_backward(dy, x, weight, bias, mean, rstd, needs);
  return as_results(empty_gradients(backward_call(dy, x, weight, bias, mean, rstd, needs)), x);
}

// ---- Autograd -----------------------------------------------------------------------------------

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns y, and with Statistics also mean and rstd, which carry no gradient. (Each output costs
// the caller half a microsecond.)
template <bool Statistics>
struct differentiable_layer_norm
    : torch::autograd::Function<differentiable_layer_norm<Statistics>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const optional_tensor& weight,
                               const optional_tensor& bias, double eps) {
    static const auto op = find_op("thunderkittens::layer_norm_forward", layer_norm_forward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [y, mean, rstd] = op.call(x, weight, bias, eps);
    ctx->save_for_backward({x, weight.value_or(Tensor()), bias.value_or(Tensor()), mean, rstd});
    ctx->set_materialize_grads(false);
    save_backend(ctx);
    if constexpr (!Statistics) return {y};
    ctx->mark_non_differentiable({mean, rstd});
    return {y, mean, rstd};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    static const auto op = find_op("thunderkittens::layer_norm_backward", layer_norm_backward);
    const Tensor& dy = gradients[0];
    if (!dy.defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
    const auto given = [](const Tensor& t) {
      return t.defined() ? optional_tensor(t) : std::nullopt;
    };
    const variable_list saved = ctx->get_saved_variables();
    const optional_tensor weight = given(saved[1]), bias = given(saved[2]);
    // Edges exist for the tensors that were given, in their order.
    const std::array<bool, 3> needs = {ctx->needs_input_grad(0), weight && ctx->needs_input_grad(1),
                                       bias && ctx->needs_input_grad(weight ? 2 : 1)};
    const backend_scope scope(saved_backend(ctx));
    auto [dx, dweight, dbias] = op.call(dy, saved[0], weight, bias, saved[3], saved[4], needs);
    return {needs[0] ? dx : Tensor(), needs[1] ? dweight : Tensor(), needs[2] ? dbias : Tensor(),
            Tensor()};
  }
};

Tensor layer_norm_autograd(c10::DispatchKeySet keys, const Tensor& x, const optional_tensor& weight,
                           const optional_tensor& bias, double eps) {
  check_dense(kForwardTable, {x, weight, bias, eps});
  refuse_forward_mode("layer_norm", x, weight, bias);
  if (records_gradient(x, weight, bias)) {
    return differentiable_layer_norm<false>::apply(x, weight, bias, eps)[0];
  }
  static const auto op = find_op("thunderkittens::layer_norm", layer_norm);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, x, weight, bias, eps);
}

three_tensors layer_norm_forward_autograd(const Tensor& x, const optional_tensor& weight,
                                          const optional_tensor& bias, double eps) {
  check_dense(kForwardTable, {x, weight, bias, eps});
  refuse_forward_mode("layer_norm", x, weight, bias);
  const variable_list outputs = differentiable_layer_norm<true>::apply(x, weight, bias, eps);
  return {outputs[0], outputs[1], outputs[2]};
}

three_tensors layer_norm_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy,
                                           const Tensor& x, const optional_tensor& weight,
                                           const optional_tensor& bias, const Tensor& mean,
                                           const Tensor& rstd, std::array<bool, 3> needs) {
  check_dense(kBackwardTable, {dy, x, weight, bias, mean, rstd});
  static const auto op = find_op("thunderkittens::layer_norm_backward", layer_norm_backward);
  return once_differentiable("layer_norm", op, keys, records_gradient(dy, x, weight), dy, x, weight,
                             bias, mean, rstd, needs);
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def(
      "layer_norm_forward(Tensor x, Tensor? weight, Tensor? bias, float eps) "
      "-> (Tensor y, Tensor mean, Tensor rstd)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor "
      "rstd, bool[3] needs) -> (Tensor dx, Tensor dweight, Tensor dbias)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("layer_norm", layer_norm);
  m.impl("layer_norm_forward", layer_norm_forward);
  m.impl("layer_norm_backward", layer_norm_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("layer_norm", layer_norm_meta);
  m.impl("layer_norm_forward", layer_norm_forward_meta);
  m.impl("layer_norm_backward", layer_norm_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("layer_norm", layer_norm_autograd);
  m.impl("layer_norm_forward", layer_norm_forward_autograd);
  m.impl("layer_norm_backward", layer_norm_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
