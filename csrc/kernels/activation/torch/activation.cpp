// The activations' common torch side: ATen implementations and the kernel calls of gated ops.
#include "kernels/activation/torch/activation.hpp"

#include <ATen/ATen.h>

#include "binding/launch.h"

namespace thunderkittens::activations {

namespace {
const char* name_of_gelu(activation f) { return f == activation::gelu_tanh ? "tanh" : "none"; }
}  // namespace

decision decide_for(const kernel& wanted, const Tensor& x) {
  return decide(wanted, x.device(),
                kernel_dtype(x.scalar_type()) ? "" : "float64 is computed by torch");
}

Tensor activate(activation f, const Tensor& x) {
  return f == activation::silu ? at::silu(x) : at::gelu(x, name_of_gelu(f));
}

Tensor activate_backward(activation f, const Tensor& dy, const Tensor& x) {
  return f == activation::silu ? at::silu_backward(dy, x)
                               : at::gelu_backward(dy, x, name_of_gelu(f));
}

Tensor upcast(const Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

// With the strides that Meta promises, also of dimensions of size 1.
Tensor rounded_like(const Tensor& x, const Tensor& result) {
  return result.to(x.scalar_type()).contiguous().view(-1).view(x.sizes());
}

namespace {

void gated_forward_kernel(const decision& d, activation f, const Tensor& gate, const Tensor& up,
                          const Tensor& y) {
  const operands_view<2> in({gate, up});
  launch(d,
         gated_forward_problem{
             .function = f,
             .rows = in.rows,
             .width = in.width,
             .gate_stride = in.stride(0),
             .up_stride = in.stride(1),
             .type = *kernel_dtype(gate.scalar_type()),
         },
         gated_forward_tensors{
             .gate = in.data(0),
             .up = in.data(1),
             .y = output(y),
         },
         gate.device());
}

void gated_backward_kernel(const decision& d, activation f, const Tensor& dy, const Tensor& gate,
                           const Tensor& up, const Tensor& dgate, const Tensor& dup) {
  const operands_view<3> in({dy, gate, up});
  launch(d,
         gated_backward_problem{
             .function = f,
             .rows = in.rows,
             .width = in.width,
             .dy_stride = in.stride(0),
             .gate_stride = in.stride(1),
             .up_stride = in.stride(2),
             .type = *kernel_dtype(gate.scalar_type()),
         },
         gated_backward_tensors{
             .dy = in.data(0),
             .gate = in.data(1),
             .up = in.data(2),
             .dgate = output(dgate),
             .dup = output(dup),
         },
         gate.device());
}

two_tensors gated_backward_aten(activation f, const Tensor& dy, const Tensor& gate,
                                const Tensor& up, std::array<bool, 2> needs) {
  const Tensor dy_float = upcast(dy), x = upcast(gate);
  const auto dgate = [&] { return activate_backward(f, dy_float * upcast(up), x); };
  const auto dup = [&] { return dy_float * activate(f, x); };
  return {needs[0] ? rounded_like(gate, dgate()) : Tensor(),
          needs[1] ? rounded_like(up, dup()) : Tensor()};
}

}  // namespace

Tensor gated_forward(const kernel& wanted, activation f, const Tensor& gate, const Tensor& up) {
  if (gate.numel() == 0 && explaining() == nullptr) return empty_contiguous(gate);
  const decision d = decide_for(wanted, gate);
  if (d.explained) {
    note_operand(d, gate, "gate");
    note_operand(d, up, "up");
    return Tensor();
  }
  if (d.on == nullptr) return rounded_like(gate, activate(f, upcast(gate)) * upcast(up));
  const Tensor y = empty_contiguous(gate);
  gated_forward_kernel(d, f, gate, up, y);
  return y;
}

two_tensors gated_backward(const kernel& wanted, activation f, const Tensor& dy, const Tensor& gate,
                           const Tensor& up, std::array<bool, 2> needs) {
  const auto empty_gradients = [&]() -> two_tensors {
    return {needs[0] ? empty_contiguous(gate) : Tensor(),
            needs[1] ? empty_contiguous(up) : Tensor()};
  };
  const bool nothing = gate.numel() == 0 || !(needs[0] || needs[1]);
  if (nothing && explaining() == nullptr) return empty_gradients();
  const decision d = decide_for(wanted, gate);
  if (d.explained) return {};
  if (d.on == nullptr) return gated_backward_aten(f, dy, gate, up, needs);
  const two_tensors gradients = empty_gradients();
  gated_backward_kernel(d, f, dy, gate, up, gradients[0], gradients[1]);
  return gradients;
}

}  // namespace thunderkittens::activations
