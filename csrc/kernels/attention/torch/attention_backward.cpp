// attention's gradients: which of kernels and ATen computes them, and the kernels.
#include <ATen/ops/empty.h>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/torch/attention_operands.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

const kernel kAttentionBackwardKernel("attention_backward", kAttentionBackward),
    kQkvpackedBackwardKernel("attention_qkvpacked_backward", kAttentionBackward);

const kernel& backward_kernel_of(const attention_call& c) {
  return c.qkv.defined() ? kQkvpackedBackwardKernel : kAttentionBackwardKernel;
}

// q, k, v, o and dout are as the kernel reads them.
tensor_array<4> backward_kernel(const decision& d, const attention_backward_call& b) {
  const attention_call& c = b.forward;
  attention_backward_problem problem{problem_of(c), strides_of(b.o), strides_of(b.dout)};
  problem.forward.q_strides = strides_of(c.q);
  problem.forward.k_strides = strides_of(c.k);
  problem.forward.v_strides = strides_of(c.v);
  const auto room = [&](size_t i, const Tensor& like) {
    return b.into[i].defined() ? b.into[i] : empty_contiguous(like);
  };
  const Tensor dq = b.needs[0] ? room(0, c.q) : Tensor(), dk = room(1, c.k), dv = room(2, c.v);
  if (dq.defined()) problem.dq_strides = strides_of(dq);
  problem.dk_strides = strides_of(dk);
  problem.dv_strides = strides_of(dv);
  if (c.bounds_keys()) {
    dk.zero_();
    dv.zero_();
  }
  const Tensor dsinks = b.needs[3] && c.sinks
                            ? at::empty(c.sinks->sizes(), c.sinks->options().dtype(at::kFloat))
                            : Tensor();
  launch(d, problem,
         attention_backward_tensors{
             .q = input(c.q),
             .k = input(c.k),
             .v = input(c.v),
             .o = input(b.o),
             .d_o = input(b.dout),
             .lse = input<float>(b.lse.contiguous()),
             .dlse = input<float>(contiguous(b.dlse)),
             .sinks = input<float>(contiguous_sinks(c)),
             .dq = output(dq),
             .dk = output(dk),
             .dv = output(dv),
             .dsinks = output<float>(dsinks),
             .cu_seqlens_q = input(contiguous(c.cu_seqlens_q)),
             .cu_seqlens_k = input(contiguous(c.cu_seqlens_k)),
             .seqused_k = input(contiguous(c.seqused_k)),
             .leftpad_k = input(contiguous(c.leftpad_k)),
         });
  return {dq, b.needs[1] ? dk : Tensor(), b.needs[2] ? dv : Tensor(),
          dsinks.defined() ? dsinks.to(c.sinks->scalar_type()) : dsinks};
}

}  // namespace

tensor_array<4> attention_gradients(attention_backward_call b) {
  attention_call& c = b.forward;
  // Without rows or keys there is nothing to choose.
  const bool chooses = c.q.numel() > 0 && c.k.numel() > 0;
  const attention_backward_problem problem{.forward = problem_of(c)};
  const decision d = chooses ? decide(backward_kernel_of(c), c.q, problem) : decision();
  if (d.explained) return {};
  for (Tensor* t : {&c.q, &b.o, &b.dout}) *t = tma_operand(*t);
  for (Tensor* t : {&c.k, &c.v}) *t = key_operand(c, *t);
  if (d.on != nullptr) return backward_kernel(d, b);
  tensor_array<4> gradients = attention_backward_by_aten(b);
  for (size_t i = 0; i < gradients.size(); ++i) {
    Tensor& t = gradients[i];
    t = !b.needs[i] ? Tensor() : b.into[i].defined() ? b.into[i].copy_(t) : exactly_contiguous(t);
  }
  return gradients;
}

void note_backward(const device& on, const attention_call& c) {
  note_backward(backward_kernel_of(c), on,
                why_unsupported(attention_backward_problem{.forward = problem_of(c)}));
}

}  // namespace thunderkittens
