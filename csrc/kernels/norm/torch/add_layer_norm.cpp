// add_layer_norm as a torch op: schema, checks and dispatch. The rest is in add_norm.cpp.
//
//   sum = dropout(x) + residual,   y = (sum − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var +
//   eps)
//
// over the last dimension.
#include <torch/library.h>

#include "binding/autograd.h"
#include "binding/op.h"
#include "kernels/norm/torch/add_norm.hpp"

namespace thunderkittens {
namespace {

constexpr arguments kArguments({
    tensor("x", dtype_rule::floating, "*,N"),
    tensor("residual", dtype_rule::same_or_float32, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    optional(tensor("bias", dtype_rule::same_or_float32, "N")),
    number("eps", 0.0),
    number("dropout_p", 0.0),
});
constexpr argument_table kTable = kArguments.table("add_layer_norm");
const enter_arguments enter_table(kTable);

const kernel kForwardKernel("add_layer_norm", kAddLayerNormForward);
const kernel kBackwardKernel("add_layer_norm_backward", kAddLayerNormBackward);

const add_norm_member kMember{
    "add_layer_norm",
    {norm_op::add_layer_norm, kForwardKernel, kBackwardKernel, /*centred=*/true},
    [](const norm_call& c) {
      check(kTable, {c.x, *c.residual, c.weight, c.bias, c.eps, c.dropout_p});
    },
};
const enter_add_norm enter_member(kMember);

// What a call is to compute, given the dropout's seed; calls `run` with it.
template <class F>
y_and_sum with_call(F run, const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                    const optional_tensor& bias, double eps, double dropout_p, bool training,
                    const optional_tensor& seed) {
  const optional_tensor other = residual,
                        own = seed_of("add_layer_norm", x, dropout_p, training, seed);
  return run(true, norm_call{x, other, weight, bias, eps, 0.0, false, dropout_p, own});
}

y_and_sum add_layer_norm(const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                         const optional_tensor& bias, double eps, double dropout_p, bool training,
                         const optional_tensor& seed) {
  return with_call(add_norm, x, residual, weight, bias, eps, dropout_p, training, seed);
}

y_and_sum add_layer_norm_meta(const Tensor& x, const Tensor& residual,
                              const optional_tensor& weight, const optional_tensor& bias,
                              double eps, double dropout_p, bool training,
                              const optional_tensor& seed) {
  return with_call(add_norm_meta, x, residual, weight, bias, eps, dropout_p, training, seed);
}

y_and_sum add_layer_norm_autograd(c10::DispatchKeySet keys, const Tensor& x, const Tensor& residual,
                                  const optional_tensor& weight, const optional_tensor& bias,
                                  double eps, double dropout_p, bool training,
                                  const optional_tensor& seed) {
  check_dense(kTable, {x, residual, weight, bias, eps, dropout_p});
  refuse_forward_mode("add_layer_norm", x, residual, weight, bias);
  if (records_gradient(x, residual, weight, bias)) {
    return with_call(add_norm_recorded, x, residual, weight, bias, eps, dropout_p, training, seed);
  }
  // The seed is drawn above the op, where a graph of torch.compile shows it.
  const optional_tensor own = seed_of("add_layer_norm", x, dropout_p, training, seed);
  static const auto op = find_op("thunderkittens::add_layer_norm", add_layer_norm);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, x, residual, weight, bias, eps, dropout_p,
                       training, own);
}

y_and_sum add_layer_norm_plain(const Tensor& x, const Tensor& residual,
                               const optional_tensor& weight, const optional_tensor& bias,
                               double eps) {
  static const auto op = find_op("thunderkittens::add_layer_norm", add_layer_norm);
  return op.call(x, residual, weight, bias, eps, /*dropout_p=*/0.0, /*training=*/true, /*seed=*/{});
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  define_short_form(m, "add_layer_norm.plain",
                    "(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps) -> "
                    "(Tensor y, Tensor sum)",
                    add_layer_norm_plain);
  m.def(
      "add_layer_norm(Tensor x, Tensor residual, Tensor? weight=None, Tensor? bias=None, float "
      "eps=1e-5, float dropout_p=0.0, bool training=True, Tensor? seed=None) -> (Tensor y, Tensor "
      "sum)",
      {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
}

// One kernel for every device, as for layer_norm.
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) {
  m.impl("add_layer_norm", add_layer_norm);
}
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { m.impl("add_layer_norm", add_layer_norm); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) {
  m.impl("add_layer_norm", add_layer_norm);
}
TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) { m.impl("add_layer_norm", add_layer_norm_meta); }
TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("add_layer_norm", add_layer_norm_autograd);
}

}  // namespace
}  // namespace thunderkittens
