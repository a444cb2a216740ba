// swiglu as torch ops. What they compute is in activation.cpp.
//
//   y = silu(gate) · up,   silu(x) = x · σ(x)
//
// 16-bit tensors are computed in float32 and rounded once; under autocast dtypes that differ are
// promoted.
#include "binding/autocast.h"
#include "binding/op.h"
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;

const kernel kSwigluForwardKernel("swiglu", kSwigluForward);
const kernel kSwigluBackwardKernel("swiglu_backward", kSwigluBackward);

struct swiglu_backward {
  static constexpr const char* name = "swiglu_backward";
  static constexpr const char* differentiates = "swiglu";
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*"),
      tensor("gate", dtype_rule::same, "*"),
      tensor("up", dtype_rule::same, "*"),
      needs<2>(),
  };
  static constexpr result_list results{like("dgate", "gate"), like("dup", "up")};

  static two_tensors compute(const Tensor& dy, const Tensor& gate, const Tensor& up,
                             std::array<bool, 2> needs) {
    return gated_backward(kSwigluBackwardKernel, activation::silu, dy, gate, up, needs);
  }
};

struct swiglu {
  using backward = swiglu_backward;
  static constexpr const char* name = "swiglu";
  static constexpr argument_list arguments{
      tensor("gate", dtype_rule::floating, "*"),
      tensor("up", dtype_rule::same, "*"),
  };
  static constexpr result_list results{like("y", "gate")};

  static std::array<Tensor, 1> compute(const Tensor& gate, const Tensor& up) {
    return {gated_forward(kSwigluForwardKernel, activation::silu, gate, up)};
  }
};

const register_ops<swiglu, swiglu_backward> registered_swiglu;
const register_promotion<swiglu> registered_swiglu_promotion;

}  // namespace
}  // namespace thunderkittens
