// gelu as a torch op: schema, checks, backends, fakes, autograd.
//
//   y = x · Φ(x), or x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
//
// No autocast rule: 16-bit tensors are computed in float32 and rounded once.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/launch.h"
#include "binding/by_hand.h"
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;
using at::Tensor;

constexpr arguments kForwardArguments({tensor("x", dtype_rule::floating, "*")});
constexpr arguments kBackwardArguments({
    tensor("dy", dtype_rule::floating, "*"),
    tensor("x", dtype_rule::same, "*"),
});
constexpr argument_table kForwardTable = kForwardArguments.table("gelu");
constexpr argument_table kBackwardTable = kBackwardArguments.table("gelu_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kForwardKernel("gelu", kGeluForward);
const kernel kBackwardKernel("gelu_backward", kGeluBackward);

void forward_kernel(const decision& d, activation f, const Tensor& x, const Tensor& y) {
  const operands_view<1> in({x});
  launch(d,
         gelu_forward_problem{
             .function = f,
             .rows = in.rows,
             .width = in.width,
             .x_stride = in.stride(0),
             .type = *kernel_dtype(x.scalar_type()),
         },
         gelu_forward_tensors{
             .x = in.data(0),
             .y = y.mutable_data_ptr(),
         },
         x.device());
}

void backward_kernel(const decision& d, activation f, const Tensor& dy, const Tensor& x,
                     const Tensor& dx) {
  const operands_view<2> in({dy, x});
  launch(d,
         gelu_backward_problem{
             .function = f,
             .rows = in.rows,
             .width = in.width,
             .dy_stride = in.stride(0),
             .x_stride = in.stride(1),
             .type = *kernel_dtype(x.scalar_type()),
         },
         gelu_backward_tensors{
             .dy = in.data(0),
             .x = in.data(1),
             .dx = dx.mutable_data_ptr(),
         },
         x.device());
}

Tensor gelu(const Tensor& x, std::string_view approximate) {
  check(kForwardTable, {x});
  const activation f = gelu_named("gelu", approximate);
  if (x.numel() == 0 && explaining() == nullptr) return empty_contiguous(x);
  const decision d = decide(kForwardKernel, x.device(), why_unsupported(x));
  if (d.explained) {
    if (d.on != nullptr) note_operand(x, "x");
    return none(x);
  }
  if (d.on == nullptr) return rounded_like(x, activate(f, upcast(x)));
  const Tensor y = empty_contiguous(x);
  forward_kernel(d, f, x, y);
  return y;
}

Tensor gelu_backward(const Tensor& dy, const Tensor& x, std::string_view approximate) {
  check(kBackwardTable, {dy, x});
  const activation f = gelu_named("gelu_backward", approximate);
  if (x.numel() == 0 && explaining() == nullptr) return empty_contiguous(x);
  const decision d = decide(kBackwardKernel, x.device(), why_unsupported(x));
  if (d.explained) return none(x);
  if (d.on == nullptr) return rounded_like(x, activate_backward(f, upcast(dy), upcast(x)));
  const Tensor dx = empty_contiguous(x);
  backward_kernel(d, f, dy, x, dx);
  return dx;
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor gelu_meta(const Tensor& x, std::string_view approximate) {
  check(kForwardTable, {x});
  gelu_named("gelu", approximate);
  return empty_contiguous(x);
}

Tensor gelu_backward_meta(const Tensor& dy, const Tensor& x, std::string_view approximate) {
  check(kBackwardTable, {dy, x});
  gelu_named("gelu_backward", approximate);
  return empty_contiguous(x);
}

// ---- Autograd -----------------------------------------------------------------------------------

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const auto& forward_op() {
  static const auto op = find_op("thunderkittens::gelu", gelu);
  return op;
}
const auto& backward_op() {
  static const auto op = find_op("thunderkittens::gelu_backward", gelu_backward);
  return op;
}

struct differentiable_gelu : torch::autograd::Function<differentiable_gelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, activation f) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor y = forward_op().call(x, name_of_gelu(f));
    ctx->save_for_backward({x});
    ctx->saved_data["function"] = static_cast<int64_t>(f);
    ctx->set_materialize_grads(false);
    save_backend(ctx);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Tensor& dy = gradients[0];
    if (!dy.defined()) return {Tensor(), Tensor()};
    const auto f = static_cast<activation>(ctx->saved_data["function"].toInt());
    const backend_scope scope(saved_backend(ctx));
    return {backward_op().call(dy, ctx->get_saved_variables()[0], name_of_gelu(f)), Tensor()};
  }
};

Tensor gelu_autograd(c10::DispatchKeySet keys, const Tensor& x, std::string_view approximate) {
  check_dense(kForwardTable, {x});
  refuse_forward_mode("gelu", x);
  if (records_gradient(x)) return differentiable_gelu::apply(x, gelu_named("gelu", approximate));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return forward_op().redispatch(keys & c10::after_autograd_keyset, x, approximate);
}

Tensor gelu_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy, const Tensor& x,
                              std::string_view approximate) {
  check_dense(kBackwardTable, {dy, x});
  return once_differentiable("gelu", backward_op(), keys, records_gradient(dy, x), dy, x,
                             approximate);
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def("gelu(Tensor x, *, str approximate=\"tanh\") -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("gelu_backward(Tensor dy, Tensor x, *, str approximate=\"tanh\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("gelu", gelu);
  m.impl("gelu_backward", gelu_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("gelu", gelu_meta);
  m.impl("gelu_backward", gelu_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("gelu", gelu_autograd);
  m.impl("gelu_backward", gelu_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
