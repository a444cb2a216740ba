// hedgehog_attention as torch ops (thunderkittens/kernels/hedgehog_attention.h: what they compute).
//
// `hedgehog_attention` gives y, `hedgehog_attention_forward` also the state,
// `hedgehog_attention_backward` the gradients, from the inputs alone: nothing else is saved. The
// ATen implementation of both, which also has the gradients of states, is in
// hedgehog_attention_aten.cpp.
#include <ATen/ATen.h>

#include <algorithm>

#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"
#include "binding/tma_operand.h"
#include "kernels/hedgehog_attention/hedgehog_attention.h"
#include "kernels/hedgehog_attention/torch/hedgehog_attention_call.hpp"

namespace thunderkittens {
namespace {

const kernel kHedgehogAttentionKernel("hedgehog_attention", kHedgehogAttention);
const kernel kHedgehogAttentionBackwardKernel("hedgehog_attention_backward",
                                              kHedgehogAttentionBackward);

// ---- The kernel ---------------------------------------------------------------------------------

hedgehog_attention_strides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

// Of the tensors as they are; what the kernel reads may be copies.
hedgehog_attention_problem problem_of(const hedgehog_attention_call& c) {
  return {
      .batch = c.q.size(0),
      .length = c.q.size(1),
      .heads = c.q.size(2),
      .head_dim = c.q.size(3),
      .value_dim = c.v.size(3),
      .features = c.q_map.size(2),
      .has_window = c.has_window(),
      .q_strides = strides_of(c.q),
      .k_strides = strides_of(c.k),
      .v_strides = strides_of(c.v),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
}

std::string why_torch(const hedgehog_attention_call& c) {
  return c.q.scalar_type() == at::kDouble ? "float64 is computed by torch"
                                          : why_unsupported(problem_of(c));
}

// Of gradients of the inputs, from that of y.
std::string why_torch_differentiates(const hedgehog_attention_call& c) {
  if (c.q.scalar_type() == at::kDouble) return "float64 is computed by torch";
  const std::string reason =
      why_unsupported(hedgehog_attention_backward_problem{problem_of(c), {}});
  if (reason.empty() && (c.kv_state || c.k_state)) {
    return "gradients of a sequence with a state before it are computed by torch";
  }
  return reason;
}

// Where a gradient is needed: whether a kernel computes it.
void note_backward(const device& on, const hedgehog_attention_call& c) {
  const Tensor* inputs[] = {&c.q, &c.k, &c.v, &c.q_map, &c.k_map, &c.alpha, &c.beta};
  if (std::ranges::none_of(inputs, [](const Tensor* t) { return t->requires_grad(); })) return;
  note_backward(kHedgehogAttentionBackwardKernel, on, why_torch_differentiates(c));
}

// Nothing to compute, and nothing to choose: no token of any head.
bool is_empty(const hedgehog_attention_call& c) {
  return c.q.size(0) == 0 || c.q.size(1) == 0 || c.q.size(2) == 0;
}

Tensor empty_output(const hedgehog_attention_call& c) {
  return at::empty_symint({c.q.sym_size(0), c.q.sym_size(1), c.q.sym_size(2), c.v.sym_size(3)},
                          c.v.options());
}
at::TensorOptions state_options(const hedgehog_attention_call& c) {
  return c.q.options().dtype(c.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}
Tensor empty_kv(const hedgehog_attention_call& c) {
  return at::empty_symint(
      {c.q.sym_size(0), c.q.sym_size(2), 2 * c.q_map.sym_size(2), c.v.sym_size(3)},
      state_options(c));
}
Tensor empty_sum(const hedgehog_attention_call& c) {
  return at::empty_symint({c.q.sym_size(0), c.q.sym_size(2), 2 * c.q_map.sym_size(2)},
                          state_options(c));
}

hedgehog_attention_results forward_by_kernel(const decision& d,
                                             const hedgehog_attention_call& given,
                                             bool wants_state) {
  hedgehog_attention_call c = given;
  for (Tensor* t : {&c.q, &c.k, &c.v}) *t = tma_operand(*t);
  for (Tensor* t : {&c.q_map, &c.k_map}) *t = tma_operand(t->contiguous());
  for (Tensor* t : {&c.alpha, &c.beta}) *t = t->contiguous();
  const auto contiguous = [](const optional_tensor& t) { return t ? t->contiguous() : Tensor(); };
  const Tensor kv_state = contiguous(c.kv_state), k_state = contiguous(c.k_state),
               first = c.first && c.has_window() ? c.first->to(at::kInt).contiguous() : Tensor();
  const auto read = []<class T>(const Tensor& t, T*) {
    return t.defined() ? t.const_data_ptr<T>() : nullptr;
  };
  const Tensor y = empty_output(c);
  hedgehog_attention_results results{y, Tensor(), Tensor()};
  if (wants_state) results = {y, empty_kv(c), empty_sum(c)};
  launch(d, problem_of(c),
         hedgehog_attention_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .q_map = c.q_map.const_data_ptr(),
             .k_map = c.k_map.const_data_ptr(),
             .alpha = c.alpha.const_data_ptr<float>(),
             .beta = c.beta.const_data_ptr<float>(),
             .y = y.mutable_data_ptr(),
             .first = read(first, static_cast<int*>(nullptr)),
             .initial_kv = read(kv_state, static_cast<float*>(nullptr)),
             .initial_sum = read(k_state, static_cast<float*>(nullptr)),
             .final_kv = wants_state ? results[1].mutable_data_ptr<float>() : nullptr,
             .final_sum = wants_state ? results[2].mutable_data_ptr<float>() : nullptr,
         });
  return results;
}

// Of no tokens: the state passes through.
hedgehog_attention_results forward_of_nothing(const hedgehog_attention_call& c, bool wants_state) {
  hedgehog_attention_results results{empty_output(c), Tensor(), Tensor()};
  if (!wants_state) return results;
  const auto passed = [](const optional_tensor& from, const Tensor& empty) {
    return from ? from->clone(at::MemoryFormat::Contiguous) : empty.zero_();
  };
  results[1] = passed(c.kv_state, empty_kv(c));
  results[2] = passed(c.k_state, empty_sum(c));
  return results;
}

hedgehog_attention_results compute_forward(const hedgehog_attention_call& c, bool wants_state) {
  if (is_empty(c) && explaining() == nullptr) return forward_of_nothing(c, wants_state);
  const decision d = decide(kHedgehogAttentionKernel, c.q.device(), why_torch(c));
  if (d.explained) {
    if (d.on == nullptr) return {};
    note_tma_copy(c.q, "q");
    note_tma_copy(c.k, "k");
    note_tma_copy(c.v, "v");
    note_backward(*d.on, c);
    return {};
  }
  return d.on == nullptr ? hedgehog_attention_by_aten(c) : forward_by_kernel(d, c, wants_state);
}

// Of no tokens: the state passes through.
hedgehog_attention_gradients gradients_of_nothing(const hedgehog_attention_backward_call& b) {
  const hedgehog_attention_call& c = b.forward;
  hedgehog_attention_gradients results;
  const Tensor* inputs[] = {&c.q, &c.k, &c.v, &c.q_map, &c.k_map, &c.alpha, &c.beta};
  for (size_t i = 0; i < std::size(inputs); ++i) {
    if (b.needs[i]) results[i] = at::zeros_like(*inputs[i], at::MemoryFormat::Contiguous);
  }
  const auto passed = [](const optional_tensor& from, const Tensor& empty) {
    return from ? from->clone(at::MemoryFormat::Contiguous) : empty.zero_();
  };
  if (b.needs[7] && c.kv_state) results[7] = passed(b.dkv_final, empty_kv(c));
  if (b.needs[8] && c.k_state) results[8] = passed(b.dk_final, empty_sum(c));
  return results;
}

std::string why_torch(const hedgehog_attention_backward_call& b) {
  if (!b.dy || b.dkv_final || b.dk_final) {
    return "gradients through the final state are computed by torch";
  }
  return why_torch_differentiates(b.forward);
}

hedgehog_attention_gradients backward_by_kernel(const decision& d,
                                                const hedgehog_attention_backward_call& given) {
  hedgehog_attention_backward_call b = given;
  hedgehog_attention_call& c = b.forward;
  for (Tensor* t : {&c.q, &c.k, &c.v, &*b.dy}) *t = tma_operand(*t);
  for (Tensor* t : {&c.q_map, &c.k_map}) *t = tma_operand(t->contiguous());
  for (Tensor* t : {&c.alpha, &c.beta}) *t = t->contiguous();
  const Tensor* inputs[] = {&c.q, &c.k, &c.v, &c.q_map, &c.k_map, &c.alpha, &c.beta};
  hedgehog_attention_gradients results;
  for (size_t i = 0; i < std::size(inputs); ++i) {
    if (b.needs[i]) results[i] = empty_contiguous(*inputs[i]);
  }
  const auto data = [&](size_t i) { return b.needs[i] ? results[i].mutable_data_ptr() : nullptr; };
  launch(d, hedgehog_attention_backward_problem{problem_of(c), strides_of(*b.dy)},
         hedgehog_attention_backward_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .q_map = c.q_map.const_data_ptr(),
             .k_map = c.k_map.const_data_ptr(),
             .alpha = c.alpha.const_data_ptr<float>(),
             .beta = c.beta.const_data_ptr<float>(),
             .dy = b.dy->const_data_ptr(),
             .dq = data(0),
             .dk = data(1),
             .dv = data(2),
             .dq_map = data(3),
             .dk_map = data(4),
             .dalpha = static_cast<float*>(data(5)),
             .dbeta = static_cast<float*>(data(6)),
         });
  return results;
}

hedgehog_attention_gradients compute_backward(const hedgehog_attention_backward_call& b) {
  if (is_empty(b.forward)) return gradients_of_nothing(b);
  const decision d = decide(kHedgehogAttentionBackwardKernel, b.forward.q.device(), why_torch(b));
  if (d.explained) return {};
  return d.on == nullptr ? hedgehog_attention_backward_by_aten(b) : backward_by_kernel(d, b);
}

// ---- Checks -------------------------------------------------------------------------------------

void check_sizes(const hedgehog_attention_call& c) {
  const SymInt length = c.q.sym_size(1), keys = c.k.sym_size(1);
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_FALSE(keys.sym_eq(length)) ||
                        keys.sym_eq(length + kHedgehogBlock).expect_true(__FILE__, __LINE__),
                    "hedgehog_attention: k.size(1) must be ", length, " (q.size(1)), or ",
                    length + kHedgehogBlock, " with the window before it, got ", keys);
  const SymInt features = 2 * c.q_map.sym_size(2);
  const auto check_state = [&](const optional_tensor& t, const char* name) {
    TORCH_CHECK_VALUE(!t || t->sym_size(2).sym_eq(features).expect_true(__FILE__, __LINE__),
                      "hedgehog_attention: ", name, ".size(2) must be ", features,
                      " (2 · q_map.size(2)), got ", t->sym_size(2));
  };
  check_state(c.kv_state, "kv_state");
  check_state(c.k_state, "k_state");
}

// ---- Ops ----------------------------------------------------------------------------------------

struct hedgehog_attention_backward : gradients_of<"hedgehog_attention"> {
  static constexpr argument_list arguments{
      tensor("q", dtype_rule::floating, "B,S,H,D"),
      tensor("k", dtype_rule::same, "B,Sw,H,D"),
      tensor("v", dtype_rule::same, "B,Sw,H,E"),
      tensor("q_map", dtype_rule::same, "H,D,F"),
      tensor("k_map", dtype_rule::same, "H,D,F"),
      tensor("alpha", dtype_rule::statistics, "H"),
      tensor("beta", dtype_rule::statistics, "H"),
      optional(tensor("kv_state", dtype_rule::statistics, "B,H,F2,E")),
      optional(tensor("k_state", dtype_rule::statistics, "B,H,F2")),
      optional(tensor("first", dtype_rule::index, "B")),
      optional(tensor("dy", dtype_rule::same, "B,S,H,E")),
      optional(tensor("dkv_final", dtype_rule::statistics, "B,H,F2,E")),
      optional(tensor("dk_final", dtype_rule::statistics, "B,H,F2")),
      needs<9>(),
  };
  static constexpr result_list results{like("dq", "q"),
                                       like("dk", "k"),
                                       like("dv", "v"),
                                       like("dq_map", "q_map"),
                                       like("dk_map", "k_map"),
                                       like("dalpha", "alpha"),
                                       like("dbeta", "beta"),
                                       like_if_given("dkv_state", "kv_state"),
                                       like_if_given("dk_state", "k_state")};

  static hedgehog_attention_gradients compute(
      const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_map, const Tensor& k_map,
      const Tensor& alpha, const Tensor& beta, const optional_tensor& kv_state,
      const optional_tensor& k_state, const optional_tensor& first, const optional_tensor& dy,
      const optional_tensor& dkv_final, const optional_tensor& dk_final,
      std::array<bool, 9> needs) {
    return compute_backward({{q, k, v, q_map, k_map, alpha, beta, kv_state, k_state, first},
                             dy,
                             dkv_final,
                             dk_final,
                             needs});
  }
};

struct hedgehog_attention {
  using backward = hedgehog_attention_backward;
  static constexpr const char* name = "hedgehog_attention";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr argument_list arguments{
      tensor("q", dtype_rule::floating, "B,S,H,D"),
      tensor("k", dtype_rule::same, "B,Sw,H,D"),
      tensor("v", dtype_rule::same, "B,Sw,H,E"),
      tensor("q_map", dtype_rule::same, "H,D,F"),
      tensor("k_map", dtype_rule::same, "H,D,F"),
      tensor("alpha", dtype_rule::statistics, "H"),
      tensor("beta", dtype_rule::statistics, "H"),
      optional(tensor("kv_state", dtype_rule::statistics, "B,H,F2,E")).otherwise("None"),
      optional(tensor("k_state", dtype_rule::statistics, "B,H,F2")).otherwise("None"),
      optional(tensor("first", dtype_rule::index, "B")).otherwise("None"),
  };
  static constexpr result_list results{result{.name = "y", .gradient = "dy", .shape = "B,S,H,E"},
                                       result{.name = "kv_final", .shape = "B,H,F2,E"},
                                       result{.name = "k_final", .shape = "B,H,F2"}};
  static constexpr size_t kReturned = 1;

  static void check_options(const auto&... args) { check_sizes({args...}); }

  static hedgehog_attention_results meta(const auto&... args) {
    const hedgehog_attention_call c{args...};
    return {empty_output(c), empty_kv(c), empty_sum(c)};
  }

  static hedgehog_attention_results compute(bool wants_state, const auto&... args) {
    return compute_forward({args...}, wants_state);
  }
};

const register_ops<hedgehog_attention, hedgehog_attention_backward> registered_hedgehog_attention;

}  // namespace
}  // namespace thunderkittens
