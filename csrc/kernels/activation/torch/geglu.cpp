// geglu as a torch op: schema, fakes, autograd. What it does is in activation.cpp.
//
//   y = gelu(gate) · up,   gelu(x) = x · Φ(x), or its tanh form
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

constexpr argument_table kForwardTable = kGatedForwardArguments.table("geglu");
constexpr argument_table kBackwardTable = kGatedBackwardArguments.table("geglu_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kForwardKernel("geglu", kGegluForward);
const kernel kBackwardKernel("geglu_backward", kGegluBackward);

Tensor geglu(const Tensor& gate, const Tensor& up, std::string_view approximate) {
  const activation f = gelu_named("geglu", approximate);
  return gated_forward(kForwardTable, kForwardKernel, f, gate, up);
}

two_tensors geglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                           std::array<bool, 2> needs, std::string_view approximate) {
  const activation f = gelu_named("geglu_backward", approximate);
  return gated_backward(kBackwardTable, kBackwardKernel, f, dy, gate, up, needs);
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor geglu_meta(const Tensor& gate, const Tensor& up, std::string_view approximate) {
  check(kForwardTable, {gate, up});
  gelu_named("geglu", approximate);
  return empty_contiguous(gate);
}

two_tensors geglu_backward_meta(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                std::array<bool, 2> needs, std::string_view approximate) {
  gelu_named("geglu_backward", approximate);
  return gated_backward_meta(kBackwardTable, dy, gate, up, needs);
}

// ---- Autograd -----------------------------------------------------------------------------------

const auto& forward_op() {
  static const auto op = find_op("thunderkittens::geglu", geglu);
  return op;
}
const auto& backward_op() {
  static const auto op = find_op("thunderkittens::geglu_backward", geglu_backward);
  return op;
}

struct through_dispatcher {
  static Tensor forward(const Tensor& gate, const Tensor& up, activation f) {
    return forward_op().call(gate, up, name_of_gelu(f));
  }
  static two_tensors backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                              std::array<bool, 2> needs, activation f) {
    return backward_op().call(dy, gate, up, needs, name_of_gelu(f));
  }
};

Tensor geglu_autograd(c10::DispatchKeySet keys, const Tensor& gate, const Tensor& up,
                      std::string_view approximate) {
  check_dense(kForwardTable, {gate, up});
  refuse_forward_mode("geglu", gate, up);
  if (records_gradient(gate, up)) {
    const activation f = gelu_named("geglu", approximate);
    return differentiable_gated<through_dispatcher>::apply(gate, up, f);
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return forward_op().redispatch(keys & c10::after_autograd_keyset, gate, up, approximate);
}

two_tensors geglu_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy, const Tensor& gate,
                                    const Tensor& up, std::array<bool, 2> needs,
                                    std::string_view approximate) {
  check_dense(kBackwardTable, {dy, gate, up});
  return once_differentiable("geglu", backward_op(), keys, records_gradient(dy, gate, up), dy, gate,
                             up, needs, approximate);
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def("geglu(Tensor gate, Tensor up, *, str approximate=\"tanh\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def(
      "geglu_backward(Tensor dy, Tensor gate, Tensor up, bool[2] needs, *, str "
      "approximate=\"tanh\") -> (Tensor dgate, Tensor dup)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("geglu", geglu);
  m.impl("geglu_backward", geglu_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("geglu", geglu_meta);
  m.impl("geglu_backward", geglu_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("geglu", geglu_autograd);
  m.impl("geglu_backward", geglu_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
