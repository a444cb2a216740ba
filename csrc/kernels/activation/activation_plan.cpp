// swiglu, geglu and gelu: the choice of a kernel, and the launch.
#include "kernels/activation/activation.h"

namespace thunderkittens {
namespace {

using kittens::host::kernel_handle;

const auto& kernel_of(const gated_forward_problem& p) {
  static const kernel_handle swiglu(kSwigluForward), geglu(kGegluForward);
  return p.function == activation::silu ? swiglu : geglu;
}
const auto& kernel_of(const gated_backward_problem& p) {
  static const kernel_handle swiglu(kSwigluBackward), geglu(kGegluBackward);
  return p.function == activation::silu ? swiglu : geglu;
}
const auto& kernel_of(const gelu_forward_problem&) {
  static const kernel_handle gelu(kGeluForward);
  return gelu;
}
const auto& kernel_of(const gelu_backward_problem&) {
  static const kernel_handle gelu(kGeluBackward);
  return gelu;
}

std::string why_gelu(activation function) {
  return function == activation::silu ? "silu is a function of gated calls alone" : "";
}

template <class Plan, class Problem>
Plan planned(const Problem& p, const device& d) {
  const auto& kernel = kernel_of(p);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

}  // namespace

std::string why_unsupported(const gated_forward_problem&) { return ""; }
std::string why_unsupported(const gated_backward_problem&) { return ""; }
std::string why_unsupported(const gelu_forward_problem& p) { return why_gelu(p.function); }
std::string why_unsupported(const gelu_backward_problem& p) { return why_gelu(p.function); }

gated_forward_plan plan(const gated_forward_problem& p, const device& d) {
  return planned<gated_forward_plan>(p, d);
}
gated_backward_plan plan(const gated_backward_problem& p, const device& d) {
  return planned<gated_backward_plan>(p, d);
}
gelu_forward_plan plan(const gelu_forward_problem& p, const device& d) {
  return planned<gelu_forward_plan>(p, d);
}
gelu_backward_plan plan(const gelu_backward_problem& p, const device& d) {
  return planned<gelu_backward_plan>(p, d);
}

void launch(const gated_forward_plan& plan, const gated_forward_tensors& tensors, const workspace&,
            stream s) {
  plan.kernel.launch({plan.problem, tensors}, s);
}
void launch(const gated_backward_plan& plan, const gated_backward_tensors& tensors,
            const workspace&, stream s) {
  plan.kernel.launch({plan.problem, tensors}, s);
}
void launch(const gelu_forward_plan& plan, const gelu_forward_tensors& tensors, const workspace&,
            stream s) {
  plan.kernel.launch({plan.problem, tensors}, s);
}
void launch(const gelu_backward_plan& plan, const gelu_backward_tensors& tensors, const workspace&,
            stream s) {
  plan.kernel.launch({plan.problem, tensors}, s);
}

}  // namespace thunderkittens
