// gelu as torch ops.
//
//   y = x · Φ(x), or x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
//
// No autocast rule: 16-bit tensors are computed in float32 and rounded once.
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;

const kernel kGeluForwardKernel("gelu", kGeluForward);
const kernel kGeluBackwardKernel("gelu_backward", kGeluBackward);

struct gelu_backward : gradients_of<"gelu"> {
  static constexpr auto arguments =
      argument_list{
          tensor("dy", dtype_rule::floating, "*"),
          tensor("x", dtype_rule::same, "*"),
      } +
      kApproximate;
  static constexpr result_list results{like("dx", "x")};

  static tensor_array<1> compute(const Tensor& dy, const Tensor& x, std::string_view approximate) {
    const activation f = function_of(approximate);
    const auto by_aten = [&] {
      return tensor_array<1>{activate_backward(f, upcast(dy), upcast(x))};
    };
    return activations::compute<gelu_backward, gelu_backward_problem, gelu_backward_tensors>(
        kGeluBackwardKernel, f, std::array{&dy, &x}, {true}, by_aten);
  }
};

struct gelu {
  using backward = gelu_backward;
  static constexpr const char* name = "gelu";
  static constexpr auto arguments =
      argument_list{tensor("x", dtype_rule::floating, "*")} + kApproximate;
  static constexpr result_list results{like("y", "x")};

  static tensor_array<1> compute(const Tensor& x, std::string_view approximate) {
    const activation f = function_of(approximate);
    const auto by_aten = [&] { return tensor_array<1>{activate(f, upcast(x))}; };
    return activations::compute<gelu, gelu_forward_problem, gelu_forward_tensors>(
        kGeluForwardKernel, f, std::array{&x}, {true}, by_aten);
  }
};

const register_ops<gelu, gelu_backward> registered_gelu;

}  // namespace
}  // namespace thunderkittens
