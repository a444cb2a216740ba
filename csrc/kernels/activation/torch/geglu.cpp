// geglu as torch ops. What they compute is in activation.cpp.
//
//   y = gelu(gate) · up,   gelu(x) = x · Φ(x), or its tanh form
//
// 16-bit tensors are computed in float32 and rounded once; under autocast dtypes that differ are
// promoted.
#include "binding/autocast.h"
#include "binding/op.h"
#include "kernels/activation/torch/activation.hpp"

namespace thunderkittens {
namespace {

using namespace activations;

const kernel kGegluForwardKernel("geglu", kGegluForward);
const kernel kGegluBackwardKernel("geglu_backward", kGegluBackward);

struct geglu_backward {
  static constexpr const char* name = "geglu_backward";
  static constexpr const char* differentiates = "geglu";
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "*"),
      tensor("gate", dtype_rule::same, "*"),
      tensor("up", dtype_rule::same, "*"),
      needs<2>(),
      word("approximate", "tanh", "none").otherwise("\"none\"").by_name(),
  };
  static constexpr result_list results{like("dgate", "gate"), like("dup", "up")};

  static two_tensors compute(const Tensor& dy, const Tensor& gate, const Tensor& up,
                             std::array<bool, 2> needs, std::string_view approximate) {
    return gated_backward(kGegluBackwardKernel, gelu_named(approximate), dy, gate, up, needs);
  }
};

struct geglu {
  using backward = geglu_backward;
  static constexpr const char* name = "geglu";
  static constexpr argument_list arguments{
      tensor("gate", dtype_rule::floating, "*"),
      tensor("up", dtype_rule::same, "*"),
      word("approximate", "tanh", "none").otherwise("\"none\"").by_name(),
  };
  static constexpr result_list results{like("y", "gate")};

  static std::array<Tensor, 1> compute(const Tensor& gate, const Tensor& up,
                                       std::string_view approximate) {
    return {gated_forward(kGegluForwardKernel, gelu_named(approximate), gate, up)};
  }
};

const register_ops<geglu, geglu_backward> registered_geglu;
const register_promotion<geglu> registered_geglu_promotion;

}  // namespace
}  // namespace thunderkittens
