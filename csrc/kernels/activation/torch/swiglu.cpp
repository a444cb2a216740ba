// swiglu as a torch op: schema, fakes, autograd. What it does is in activation.cpp.
//
//   y = silu(gate) · up,   silu(x) = x · σ(x)
//
// No autocast rule: 16-bit tensors are computed in float32 and rounded once.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/by_hand.h"
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;
using at::Tensor;

constexpr argument_table kForwardTable = kGatedForwardArguments.table("swiglu");
constexpr argument_table kBackwardTable = kGatedBackwardArguments.table("swiglu_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kForwardKernel("swiglu", kSwigluForward);
const kernel kBackwardKernel("swiglu_backward", kSwigluBackward);

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return gated_forward(kForwardTable, kForwardKernel, activation::silu, gate, up);
}

two_tensors swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                            std::array<bool, 2> needs) {
  return gated_backward(kBackwardTable, kBackwardKernel, activation::silu, dy, gate, up, needs);
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor swiglu_meta(const Tensor& gate, const Tensor& up) {
  check(kForwardTable, {gate, up});
  return empty_contiguous(gate);
}

two_tensors swiglu_backward_meta(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                 std::array<bool, 2> needs) {
  return gated_backward_meta(kBackwardTable, dy, gate, up, needs);
}

// ---- Autograd -----------------------------------------------------------------------------------

const auto& forward_op() {
  static const auto op = find_op("thunderkittens::swiglu", swiglu);
  return op;
}
const auto& backward_op() {
  static const auto op = find_op("thunderkittens::swiglu_backward", swiglu_backward);
  return op;
}

struct through_dispatcher {
  static Tensor forward(const Tensor& gate, const Tensor& up, activation) {
    return forward_op().call(gate, up);
  }
  static two_tensors backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                              std::array<bool, 2> needs, activation) {
    return backward_op().call(dy, gate, up, needs);
  }
};

Tensor swiglu_autograd(c10::DispatchKeySet keys, const Tensor& gate, const Tensor& up) {
  check_dense(kForwardTable, {gate, up});
  refuse_forward_mode("swiglu", gate, up);
  if (records_gradient(gate, up)) {
    return differentiable_gated<through_dispatcher>::apply(gate, up, activation::silu);
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return forward_op().redispatch(keys & c10::after_autograd_keyset, gate, up);
}

two_tensors swiglu_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy, const Tensor& gate,
                                     const Tensor& up, std::array<bool, 2> needs) {
  check_dense(kBackwardTable, {dy, gate, up});
  return once_differentiable("swiglu", backward_op(), keys, records_gradient(dy, gate, up), dy,
                             gate, up, needs);
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def(
      "swiglu_backward(Tensor dy, Tensor gate, Tensor up, bool[2] needs) "
      "-> (Tensor dgate, Tensor dup)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("swiglu", swiglu);
  m.impl("swiglu_backward", swiglu_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("swiglu", swiglu_meta);
  m.impl("swiglu_backward", swiglu_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("swiglu", swiglu_autograd);
  m.impl("swiglu_backward", swiglu_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
