// add_rms_norm as a torch op: schema, checks and dispatch. The rest is in add_norm.cpp.
//
//   sum = dropout(x) + residual,   y = sum · rstd · (weight + weight_offset),   rstd = 1 /
//   sqrt(mean(sum²) + eps)
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
    number("eps", 0.0),
    number("weight_offset"),
    number("dropout_p", 0.0),
});
constexpr argument_table kTable = kArguments.table("add_rms_norm");
const enter_arguments enter_table(kTable);

const kernel kForwardKernel("add_rms_norm", kAddRmsNormForward);
const kernel kBackwardKernel("add_rms_norm_backward", kAddRmsNormBackward);

const add_norm_member kMember{
    "add_rms_norm",
    {norm_op::add_rms_norm, kForwardKernel, kBackwardKernel, /*centred=*/false},
    [](const norm_call& c) {
      check(kTable, {c.x, *c.residual, c.weight, c.eps, c.weight_offset, c.dropout_p});
    },
};
const enter_add_norm enter_member(kMember);

// What a call is to compute, given the dropout's seed; calls `run` with it.
template <class F>
y_and_sum with_call(F run, const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                    double eps, double weight_offset, std::string_view casting, double dropout_p,
                    bool training, const optional_tensor& seed) {
  const optional_tensor other = residual,
                        own = seed_of("add_rms_norm", x, dropout_p, training, seed);
  return run(false, norm_call{x, other, weight, kNoTensor, eps, weight_offset,
                              rounds_first("add_rms_norm", casting), dropout_p, own});
}

y_and_sum add_rms_norm(const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                       double eps, double weight_offset, std::string_view casting, double dropout_p,
                       bool training, const optional_tensor& seed) {
  return with_call(add_norm, x, residual, weight, eps, weight_offset, casting, dropout_p, training,
                   seed);
}

y_and_sum add_rms_norm_meta(const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                            double eps, double weight_offset, std::string_view casting,
                            double dropout_p, bool training, const optional_tensor& seed) {
  return with_call(add_norm_meta, x, residual, weight, eps, weight_offset, casting, dropout_p,
                   training, seed);
}

y_and_sum add_rms_norm_autograd(c10::DispatchKeySet keys, const Tensor& x, const Tensor& residual,
                                const optional_tensor& weight, double eps, double weight_offset,
                                std::string_view casting, double dropout_p, bool training,
                                const optional_tensor& seed) {
  check_dense(kTable, {x, residual, weight, eps, weight_offset, dropout_p});
  refuse_forward_mode("add_rms_norm", x, residual, weight);
  if (records_gradient(x, residual, weight)) {
    return with_call(add_norm_recorded, x, residual, weight, eps, weight_offset, casting, dropout_p,
                     training, seed);
  }
  // The seed is drawn above the op, where a graph of torch.compile shows it.
  const optional_tensor own = seed_of("add_rms_norm", x, dropout_p, training, seed);
  static const auto op = find_op("thunderkittens::add_rms_norm", add_rms_norm);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, x, residual, weight, eps, weight_offset,
                       casting, dropout_p, training, own);
}

y_and_sum add_rms_norm_plain(const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                             double eps) {
  static const auto op = find_op("thunderkittens::add_rms_norm", add_rms_norm);
  return op.call(x, residual, weight, eps, /*weight_offset=*/0.0, "llama", /*dropout_p=*/0.0,
                 /*training=*/true, /*seed=*/{});
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  define_short_form(m, "add_rms_norm.plain",
                    "(Tensor x, Tensor residual, Tensor? weight, float eps) -> (Tensor y, Tensor "
                    "sum)",
                    add_rms_norm_plain);
  m.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, float eps=1e-6, float "
      "weight_offset=0.0, str casting=\"llama\", float dropout_p=0.0, bool training=True, Tensor? "
      "seed=None) -> (Tensor y, Tensor sum)",
      {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
}

// One kernel for every device, as for layer_norm.
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) {
  m.impl("add_rms_norm", add_rms_norm);
}
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { m.impl("add_rms_norm", add_rms_norm); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { m.impl("add_rms_norm", add_rms_norm); }
TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) { m.impl("add_rms_norm", add_rms_norm_meta); }
TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) { m.impl("add_rms_norm", add_rms_norm_autograd); }

}  // namespace
}  // namespace thunderkittens
