// attention's gradients: which of kernels and ATen computes them, and the kernels.
#include "kernels/attention/torch/attention_backward.hpp"

#include <ATen/ops/empty.h>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/torch/attention_operands.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;

const kernel kAttentionBackwardKernel("attention_backward", kAttentionBackward);

std::string why_torch(const attention_call& c) {
  if (c.q.scalar_type() == at::kDouble) return "float64 is computed by torch";
  return why_unsupported(attention_backward_problem{.forward = problem_of(c)});
}

// q, k, v, o and dout are as the kernel reads them.
four_tensors backward_kernel(const decision& d, const attention_backward_call& b) {
  const attention_call& c = b.forward;
  attention_backward_problem problem{problem_of(c), strides_of(b.o), strides_of(b.dout)};
  problem.forward.q_strides = strides_of(c.q);
  problem.forward.k_strides = strides_of(c.k);
  problem.forward.v_strides = strides_of(c.v);
  const Tensor lse = b.lse.contiguous();
  const Tensor dlse = b.dlse ? b.dlse->contiguous() : Tensor();
  const bool packed = problem.forward.packed;
  const Tensor q_ends = packed ? c.cu_seqlens_q->contiguous() : Tensor();
  const Tensor k_ends = packed ? c.cu_seqlens_k->contiguous() : Tensor();
  const bool needs_sinks = b.needs[3] && c.sinks;
  const Tensor sinks = c.sinks ? c.sinks->to(at::kFloat).contiguous() : Tensor();
  const Tensor dq = b.needs[0] ? empty_contiguous(c.q) : Tensor();
  const Tensor seqused = c.seqused_k ? c.seqused_k->contiguous() : Tensor();
  const Tensor leftpad = c.leftpad_k ? c.leftpad_k->contiguous() : Tensor();
  const Tensor dk = empty_contiguous(c.k), dv = empty_contiguous(c.v);
  if (c.bounds_keys()) {
    dk.zero_();
    dv.zero_();
  }
  const Tensor dsinks = needs_sinks ? at::empty_like(sinks) : Tensor();
  launch(d, problem,
         attention_backward_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .o = b.o.const_data_ptr(),
             .d_o = b.dout.const_data_ptr(),
             .lse = lse.const_data_ptr<float>(),
             .dlse = dlse.defined() ? dlse.const_data_ptr<float>() : nullptr,
             .sinks = sinks.defined() ? sinks.const_data_ptr<float>() : nullptr,
             .dq = dq.defined() ? dq.mutable_data_ptr() : nullptr,
             .dk = dk.mutable_data_ptr(),
             .dv = dv.mutable_data_ptr(),
             .dsinks = needs_sinks ? dsinks.mutable_data_ptr<float>() : nullptr,
             .cu_seqlens_q = packed ? q_ends.const_data_ptr() : nullptr,
             .cu_seqlens_k = packed ? k_ends.const_data_ptr() : nullptr,
             .seqused_k = seqused.defined() ? seqused.const_data_ptr() : nullptr,
             .leftpad_k = leftpad.defined() ? leftpad.const_data_ptr() : nullptr,
         },
         c.q.device());
  return {dq, b.needs[1] ? dk : Tensor(), b.needs[2] ? dv : Tensor(),
          needs_sinks ? dsinks.to(c.sinks->scalar_type()) : Tensor()};
}

}  // namespace

four_tensors attention_gradients(attention_backward_call b) {
  attention_call& c = b.forward;
  // Without rows or keys there is nothing to choose.
  const bool chooses = c.q.numel() > 0 && c.k.numel() > 0;
  const decision d =
      chooses ? decide(kAttentionBackwardKernel, c.q.device(), why_torch(c)) : decision();
  if (d.explained) return {};
  for (Tensor* t : {&c.q, &b.o, &b.dout}) *t = tma_operand(*t);
  for (Tensor* t : {&c.k, &c.v}) *t = key_operand(c, *t);
  if (d.on != nullptr) return backward_kernel(d, b);
  const auto [dq, dk, dv, dsinks] = attention_backward_by_aten(b);
  const auto needed = [&](size_t i, const Tensor& t) {
    return b.needs[i] ? exactly_contiguous(t) : Tensor();
  };
  return {needed(0, dq), needed(1, dk), needed(2, dv), needed(3, dsinks)};
}

std::string who_differentiates(const device& on, const attention_forward_problem& forward) {
  std::string reason = why_unsupported(attention_backward_problem{.forward = forward});
  if (reason.empty() && kAttentionBackwardKernel.launchers->find(on) == nullptr) {
    reason = kAttentionBackwardKernel.launchers->why_not(on);
  }
  return reason.empty() ? "its backward is computed by a kernel, too"
                        : "its backward is computed by torch: " + reason;
}

}  // namespace thunderkittens
