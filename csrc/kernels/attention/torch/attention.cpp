// attention as a torch op: schema, outputs, backends, fakes. The checks are in
// attention_arguments.cpp, autograd and autocast in attention_autograd.cpp, the ATen implementation
// in attention_reference.cpp and attention_gradients.cpp.
//
//   o = softmax(scale · q kᵀ, masked) v,   lse = log Σ exp(scale · q kᵀ, masked),   per query row
//
// Three ops: `attention` gives o, `attention_forward` also lse, `attention_backward` the gradients
// of what the kernel computed; it is ATen's as yet, from the saved o and lse.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/torch/attention_call.hpp"
#include "kernels/attention/torch/attention_operands.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using c10::SymInt;
using optional_tensor = std::optional<Tensor>;
using two_tensors = std::tuple<Tensor, Tensor>;
using four_tensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

const kernel kForwardKernel("attention", kAttentionForward);

// ---- The kernel ---------------------------------------------------------------------------------

// What the call asks for, but for strides, which follow from what the kernel reads. Symbolic sizes
// count as none.
attention_forward_problem problem_of(const attention_call& c) {
  const auto size = [](const SymInt& s) { return s.maybe_as_int().value_or(0); };
  const auto is_long = [](const optional_tensor& t) { return t && t->scalar_type() == at::kLong; };
  const auto reach = [](const std::optional<int64_t>& window) {
    return window.value_or(attention_forward_problem::kAll);
  };
  const bool packed = c.cu_seqlens_q.has_value();
  const int64_t width = c.q.sym_size(-1).guard_int(__FILE__, __LINE__);
  return {
      .batch = packed ? 1 : size(c.q.sym_size(0)),
      .rows = size(c.q.sym_size(-3)),
      .keys = size(c.k.sym_size(-3)),
      .heads = size(c.q.sym_size(-2)),
      .key_heads = size(c.k.sym_size(-2)),
      .head_dim = width,
      .value_dim = c.v.sym_size(-1).guard_int(__FILE__, __LINE__),
      .scale = attention_scale(c.scale, width),
      .softcap = c.softcap,
      .left = reach(c.window_left),
      .right = c.causal ? 0 : reach(c.window_right),
      .packed = packed,
      .sequences = packed ? size(c.cu_seqlens_q->sym_numel()) - 1 : 0,
      .int64_seqlens_q = is_long(c.cu_seqlens_q),
      .int64_seqlens_k = is_long(c.cu_seqlens_k),
      .type = kernel_dtype(c.q.scalar_type()).value_or(dtype::float32),
  };
}

std::string why_torch(const attention_call& c, const attention_forward_problem& problem) {
  return c.q.scalar_type() == at::kDouble ? "float64 is computed by torch"
                                          : why_unsupported(problem);
}

void take_notes(const attention_call& c) {
  for (const auto& [t, name] : {std::pair(&c.q, "q"), {&c.k, "k"}, {&c.v, "v"}}) {
    const char* reason = t->numel() == 0 ? nullptr : why_copied(*t);
    if (reason == nullptr) continue;
    explaining()->notes.push_back(
        c10::str(name, " is copied first: ", reason, " (strides ", t->strides(), ")"));
  }
  if (c.q.requires_grad() || c.k.requires_grad() || c.v.requires_grad()) {
    explaining()->notes.push_back("its backward is computed by torch");
  }
}

// Of [B, S, H, D], or of packed [T, H, D]; what the stride of a single packed row is, is nothing.
attention_strides strides_of(const Tensor& t) {
  if (t.dim() == 4) return {t.stride(0), t.stride(1), t.stride(2)};
  return {0, t.size(0) == 1 ? t.numel() : t.stride(0), t.stride(1)};
}

// lse may be undefined: not wanted.
void forward_kernel(const decision& d, attention_forward_problem problem, const attention_call& c,
                    const Tensor& o, const Tensor& lse) {
  const Tensor q = operand(c.q), k = operand(c.k), v = operand(c.v);
  const Tensor sinks = c.sinks ? c.sinks->to(at::kFloat).contiguous() : Tensor();
  const Tensor q_ends = problem.packed ? c.cu_seqlens_q->contiguous() : Tensor();
  const Tensor k_ends = problem.packed ? c.cu_seqlens_k->contiguous() : Tensor();
  problem.q_strides = strides_of(q);
  problem.k_strides = strides_of(k);
  problem.v_strides = strides_of(v);
  launch(d, problem,
         attention_forward_tensors{
             .q = q.const_data_ptr(),
             .k = k.const_data_ptr(),
             .v = v.const_data_ptr(),
             .o = o.mutable_data_ptr(),
             .lse = lse.defined() ? lse.mutable_data_ptr<float>() : nullptr,
             .sinks = sinks.defined() ? sinks.const_data_ptr<float>() : nullptr,
             .cu_seqlens_q = problem.packed ? q_ends.const_data_ptr() : nullptr,
             .cu_seqlens_k = problem.packed ? k_ends.const_data_ptr() : nullptr,
         },
         q.device());
}

// ---- Ops ----------------------------------------------------------------------------------------

// [B, Sq, Hq, Dv], packed [Tq, Hq, Dv].
Tensor empty_output(const attention_call& c) {
  c10::SmallVector<SymInt, 4> sizes(c.q.sym_sizes());
  sizes.back() = c.v.sym_sizes().back();
  return at::empty_symint(sizes, c.q.options());
}

// [B, Hq, Sq], packed [Hq, Tq].
Tensor empty_lse(const attention_call& c) {
  const auto sizes = c.q.sym_sizes();
  const auto options = c.q.options().dtype(attention_computing_dtype(c.q));
  return sizes.size() == 3 ? at::empty_symint({sizes[1], sizes[0]}, options)
                           : at::empty_symint({sizes[0], sizes[2], sizes[1]}, options);
}

// The same numbers with the strides that Meta promises, also of dimensions of size 1.
Tensor exactly_contiguous(const Tensor& t) {
  return t.defined() ? t.contiguous().view(-1).view(t.sizes()) : t;
}

// lse is undefined when it is not wanted.
two_tensors compute(const attention_call& c, bool wants_lse) {
  check_call(c);
  const bool no_rows = c.q.numel() == 0 && c.q.sizes().back() != 0;
  if (no_rows && explaining() == nullptr) return {empty_output(c), empty_lse(c)};
  const attention_forward_problem problem = problem_of(c);
  const decision d = decide(kForwardKernel, c.q.device(), why_torch(c, problem));
  if (d.explained) {
    if (d.on != nullptr) take_notes(c);
    return {none(c.q), none(c.q)};
  }
  if (d.on == nullptr) {
    const auto [o, lse] = attention_by_aten(c, wants_lse);
    return {exactly_contiguous(o), exactly_contiguous(lse)};
  }
  const Tensor o = empty_output(c);
  const Tensor lse = wants_lse ? empty_lse(c) : Tensor();
  if (c.k.size(-3) == 0) {  // nothing for TMA to read
    o.zero_();
    if (wants_lse && c.sinks) {
      lse.copy_(c.sinks->unsqueeze(-1).expand_as(lse));
    } else if (wants_lse) {
      lse.fill_(-std::numeric_limits<double>::infinity());
    }
  } else {
    forward_kernel(d, problem, c, o, lse);
  }
  return {o, lse};
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor attention_meta(const attention_call& c) {
  check_call(c);
  return empty_output(c);
}
two_tensors attention_forward_meta(const attention_call& c) {
  check_call(c);
  return {empty_output(c), empty_lse(c)};
}

four_tensors attention_backward_meta(const attention_backward_call& b) {
  check_backward(b);
  const attention_call& c = b.forward;
  return {b.needs[0] ? empty_contiguous(c.q) : none(c.q),
          b.needs[1] ? empty_contiguous(c.k) : none(c.k),
          b.needs[2] ? empty_contiguous(c.v) : none(c.v),
          b.needs[3] && c.sinks ? empty_contiguous(*c.sinks) : none(c.q)};
}

constexpr const char* kOptions =
    "*, int? window_left=None, int? window_right=None, float softcap=0.0, Tensor? sinks=None, "
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, SymInt? max_seqlen_q=None, "
    "SymInt? max_seqlen_k=None) -> ";
constexpr const char* kInputs =
    "(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, ";
constexpr const char* kBackwardInputs =
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool causal, "
    "float? scale, bool[4] needs, ";

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("attention", with_call<attention>);
  m.impl("attention_forward", with_call<attention_forward>);
  m.impl("attention_backward", with_backward<attention_backward>);
}

}  // namespace

bool is_served_by_kernel(const attention_call& c) {
  const std::string unsupported = why_torch(c, problem_of(c));
  const c10::Device device = c.q.device();
  if (is_stand_in(c.q)) {
    const bool built = !device.is_cuda() || why_not(kForwardKernel, device.index()).empty();
    if (built && unsupported.empty()) return true;
  }
  return decide(kForwardKernel, device, unsupported).on != nullptr;
}

Tensor attention(const attention_call& c) { return std::get<0>(compute(c, /*wants_lse=*/false)); }
two_tensors attention_forward(const attention_call& c) { return compute(c, /*wants_lse=*/true); }

four_tensors attention_backward(const attention_backward_call& given) {
  check_backward(given);
  attention_backward_call b = given;
  attention_call& c = b.forward;
  for (Tensor* t : {&c.q, &c.k, &c.v, &b.o, &b.dout}) *t = operand(*t);
  const auto [dq, dk, dv, dsinks] = attention_backward_by_aten(b);
  return {b.needs[0] ? exactly_contiguous(dq) : none(c.q),
          b.needs[1] ? exactly_contiguous(dk) : none(c.q),
          b.needs[2] ? exactly_contiguous(dv) : none(c.q),
          b.needs[3] && c.sinks ? exactly_contiguous(dsinks) : none(c.q)};
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  const auto define = [&](const char* name, const char* inputs, const char* outputs) {
    m.def(c10::str(name, inputs, kOptions, outputs).c_str(), {at::Tag::pt2_compliant_tag});
  };
  define("attention", kInputs, "Tensor");
  define("attention_forward", kInputs, "(Tensor o, Tensor lse)");
  define("attention_backward", kBackwardInputs, "(Tensor dq, Tensor dk, Tensor dv, Tensor dsinks)");
}

TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("attention", with_call<attention_meta>);
  m.impl("attention_forward", with_call<attention_forward_meta>);
  m.impl("attention_backward", with_backward<attention_backward_meta>);
}

}  // namespace thunderkittens
