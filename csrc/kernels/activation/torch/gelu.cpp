// gelu as torch ops.
//
//   y = x · Φ(x), or x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
//
// No autocast rule: 16-bit tensors are computed in float32 and rounded once.
#include "binding/launch.h"
#include "binding/op.h"
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;

const kernel kGeluForwardKernel("gelu", kGeluForward);
const kernel kGeluBackwardKernel("gelu_backward", kGeluBackward);

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
             .y = output(y),
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
             .dx = output(dx),
         },
         x.device());
}

struct gelu_backward {
  static constexpr const char* name = "gelu_backward";
  static constexpr const char* differentiates = "gelu";
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*"),
      tensor("x", dtype_rule::same, "*"),
      word("approximate", "tanh", "none").otherwise("\"none\"").by_name(),
  };
  static constexpr result_list results{like("dx", "x")};

  static std::array<Tensor, 1> compute(const Tensor& dy, const Tensor& x,
                                       std::string_view approximate) {
    const activation f = gelu_named(approximate);
    if (x.numel() == 0 && explaining() == nullptr) return {empty_contiguous(x)};
    const decision d = decide_for(kGeluBackwardKernel, x);
    if (d.explained) return {};
    if (d.on == nullptr) return {rounded_like(x, activate_backward(f, upcast(dy), upcast(x)))};
    const Tensor dx = empty_contiguous(x);
    backward_kernel(d, f, dy, x, dx);
    return {dx};
  }
};

struct gelu {
  using backward = gelu_backward;
  static constexpr const char* name = "gelu";
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*"),
      word("approximate", "tanh", "none").otherwise("\"none\"").by_name(),
  };
  static constexpr result_list results{like("y", "x")};

  static std::array<Tensor, 1> compute(const Tensor& x, std::string_view approximate) {
    const activation f = gelu_named(approximate);
    if (x.numel() == 0 && explaining() == nullptr) return {empty_contiguous(x)};
    const decision d = decide_for(kGeluForwardKernel, x);
    if (d.explained) {
      note_operand(d, x, "x");
      return {};
    }
    if (d.on == nullptr) return {rounded_like(x, activate(f, upcast(x)))};
    const Tensor y = empty_contiguous(x);
    forward_kernel(d, f, x, y);
    return {y};
  }
};

const register_ops<gelu, gelu_backward> registered_gelu;

}  // namespace
}  // namespace thunderkittens
