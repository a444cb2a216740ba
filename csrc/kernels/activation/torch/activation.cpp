// The functions by ATen.
#include "kernels/activation/torch/activation.hpp"

#include <ATen/ATen.h>

namespace thunderkittens::activations {

namespace {
const char* name_of_gelu(activation f) { return f == activation::gelu_tanh ? "tanh" : "none"; }
}  // namespace

Tensor activate(activation f, const Tensor& x) {
  return f == activation::silu ? at::silu(x) : at::gelu(x, name_of_gelu(f));
}

Tensor activate_backward(activation f, const Tensor& dy, const Tensor& x) {
  return f == activation::silu ? at::silu_backward(dy, x)
                               : at::gelu_backward(dy, x, name_of_gelu(f));
}

}  // namespace thunderkittens::activations
