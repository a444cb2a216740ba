// linear_attention as torch ops.
//
//   S(t) = e^g(t) S(t − 1) + k(t) v(t)ᵀ,   o(t) = scale · S(t)ᵀ q(t)
//
// `linear_attention` gives o, `linear_attention_forward` also the final state,
// `linear_attention_backward` the gradients, from the inputs alone: nothing else is saved. The ATen
// implementation is in linear_attention_aten.cpp.
#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/op.h"
#include "binding/tma_operand.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/torch/linear_attention_call.hpp"

namespace thunderkittens {
namespace {

const kernel kLinearAttentionKernel("linear_attention", kLinearAttention);
const kernel kLinearAttentionBackwardKernel("linear_attention_backward", kLinearAttention);

// ---- The kernel ---------------------------------------------------------------------------------

linear_attention_strides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

// Of the tensors as they are; what the kernel reads may be copies.
linear_attention_problem problem_of(const linear_attention_call& c) {
  return {
      .batch = c.v.size(0),
      .length = c.v.size(1),
      .heads = c.v.size(2),
      .key_heads = c.q.size(2),
      .key_width = c.q.size(3),
      .value_width = c.v.size(3),
      .q_strides = strides_of(c.q),
      .k_strides = strides_of(c.k),
      .v_strides = strides_of(c.v),
      .decay_strides = c.log_decay ? strides_of(*c.log_decay) : linear_attention_strides{},
      .scale = c.scale_or_usual(),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
      .sequences = c.cu_seqlens ? c.cu_seqlens->numel() - 1 : 0,
      .int64_seqlens = is_int64(c.cu_seqlens),
  };
}

// Packed sequences, [T, …], as one batch, [1, T, …].
linear_attention_call in_one_batch(const linear_attention_call& given) {
  linear_attention_call c = given;
  if (!c.cu_seqlens) return c;
  for (Tensor* t : {&c.q, &c.k, &c.v}) *t = t->unsqueeze(0);
  if (c.log_decay) c.log_decay = c.log_decay->unsqueeze(0);
  return c;
}

// Nothing to compute, and nothing to choose: no token of any head, or no sequence.
bool is_empty(const linear_attention_call& c) {
  return c.v.size(0) == 0 || c.v.size(1) == 0 || c.v.size(2) == 0 ||
         (c.cu_seqlens && c.cu_seqlens->numel() == 1);
}

linear_attention_results forward_by_kernel(const decision& d, const linear_attention_call& given,
                                           bool wants_state) {
  linear_attention_call c = given;
  for (Tensor* t : {&c.q, &c.k, &c.v}) *t = tma_operand(*t);
  const Tensor initial = contiguous(c.initial_state), ends = contiguous(c.cu_seqlens),
               o = empty_contiguous(c.v), final = wants_state ? c.empty_state() : Tensor();
  launch(d, problem_of(c),
         linear_attention_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .o = o.mutable_data_ptr(),
             .log_decay = c.log_decay ? c.log_decay->const_data_ptr<float>() : nullptr,
             .initial_state = input<float>(initial),
             .final_state = output<float>(final),
             .cu_seqlens = input(ends),
         });
  return {o, final};
}

linear_attention_results compute_in_batch(const linear_attention_call& c, bool wants_state) {
  if (is_empty(c) && explaining() == nullptr) {
    Tensor state;
    if (wants_state) {
      state = c.initial_state ? c.initial_state->clone(at::MemoryFormat::Contiguous)
                              : c.empty_state().zero_();
    }
    return {at::zeros_like(c.v, at::MemoryFormat::Contiguous), state};
  }
  const decision d = decide(kLinearAttentionKernel, c.q, problem_of(c));
  if (d.explained) {
    if (d.on == nullptr) return {};
    note_tma_copy(c.q, "q");
    note_tma_copy(c.k, "k");
    note_tma_copy(c.v, "v");
    return {};
  }
  return d.on == nullptr ? linear_attention_by_aten(c) : forward_by_kernel(d, c, wants_state);
}

linear_attention_results compute_forward(const linear_attention_call& c, bool wants_state) {
  linear_attention_results results = compute_in_batch(in_one_batch(c), wants_state);
  if (c.cu_seqlens && results[0].defined()) results[0] = results[0].squeeze(0);
  return results;
}

// [B, S, H], and more if need be.
Tensor empty_of_tokens(const linear_attention_call& c, std::optional<int64_t> more = std::nullopt) {
  c10::SmallVector<int64_t, 4> sizes{c.v.size(0), c.v.size(1), c.v.size(2)};
  if (more) sizes.push_back(*more);
  return at::empty(sizes, c.v.options().dtype(at::kFloat));
}

linear_attention_gradients backward_by_kernel(const decision& d,
                                              const linear_attention_backward_call& b) {
  linear_attention_call c = b.forward;
  for (Tensor* t : {&c.q, &c.k, &c.v}) *t = tma_operand(*t);
  const Tensor dout = tma_operand(b.dout), initial = contiguous(c.initial_state),
               d_final = contiguous(b.dfinal_state), ends = contiguous(c.cu_seqlens);
  const bool decays = b.needs[3] && c.log_decay;
  const bool needs_state = b.needs[4] && c.initial_state;
  const bool needs_dk = b.needs[1] || decays, needs_dv = b.needs[2] || (needs_state && !needs_dk);
  const auto of_heads = [&](bool needed) {
    return needed ? at::empty({c.v.size(0), c.v.size(1), c.v.size(2), c.q.size(3)}, c.q.options())
                  : Tensor();
  };
  const auto dots = [&] { return decays ? empty_of_tokens(c, (c.q.size(3) + 63) / 64) : Tensor(); };
  const auto data = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
  const Tensor dq = of_heads(b.needs[0] || decays), dk = of_heads(needs_dk),
               dv = needs_dv ? empty_contiguous(c.v) : Tensor(), q_dots = dots(), k_dots = dots(),
               d_initial = needs_state ? c.empty_state() : Tensor(),
               d_log_decay = decays ? empty_of_tokens(c) : Tensor();
  launch(d, linear_attention_backward_problem{problem_of(c), strides_of(dout), decays},
         linear_attention_backward_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .d_o = dout.const_data_ptr(),
             .log_decay = c.log_decay ? c.log_decay->const_data_ptr<float>() : nullptr,
             .initial_state = input<float>(initial),
             .d_final_state = input<float>(d_final),
             .dq = data(dq),
             .dk = data(dk),
             .dv = data(dv),
             .d_initial_state = output<float>(d_initial),
             .q_dots = output<float>(q_dots),
             .k_dots = output<float>(k_dots),
             .cu_seqlens = input(ends),
             .d_log_decay = output<float>(d_log_decay),
         });
  linear_attention_gradients results;
  if (b.needs[0]) results[0] = add_up_heads(dq, c.q);
  if (b.needs[1]) results[1] = add_up_heads(dk, c.k);
  if (b.needs[2]) results[2] = dv;
  if (decays) results[3] = d_log_decay;
  if (b.needs[4]) results[4] = d_initial;
  return results;
}

// Of no tokens: the state passes through.
linear_attention_gradients gradients_of_nothing(const linear_attention_backward_call& b) {
  const linear_attention_call& c = b.forward;
  linear_attention_gradients results;
  if (b.needs[0]) results[0] = at::zeros_like(c.q, at::MemoryFormat::Contiguous);
  if (b.needs[1]) results[1] = at::zeros_like(c.k, at::MemoryFormat::Contiguous);
  if (b.needs[2]) results[2] = at::zeros_like(c.v, at::MemoryFormat::Contiguous);
  if (b.needs[3] && c.log_decay) {
    results[3] = at::zeros_like(*c.log_decay, at::MemoryFormat::Contiguous);
  }
  if (b.needs[4] && c.initial_state) {
    results[4] = b.dfinal_state ? b.dfinal_state->clone(at::MemoryFormat::Contiguous)
                                : c.empty_state().zero_();
  }
  return results;
}

linear_attention_gradients compute_backward(const linear_attention_backward_call& given) {
  linear_attention_backward_call b = given;
  b.forward = in_one_batch(given.forward);
  const linear_attention_call& c = b.forward;
  if (c.cu_seqlens) b.dout = b.dout.unsqueeze(0);
  const auto in_batch = [&]() -> linear_attention_gradients {
    if (is_empty(c)) return gradients_of_nothing(b);
    const linear_attention_backward_problem problem{problem_of(c), {}};
    const decision d = decide(kLinearAttentionBackwardKernel, c.q, problem);
    if (d.explained) return {};
    return d.on == nullptr ? linear_attention_backward_by_aten(b) : backward_by_kernel(d, b);
  };
  linear_attention_gradients results = in_batch();
  if (!c.cu_seqlens) return results;
  for (Tensor* t : {&results[0], &results[1], &results[2], &results[3]}) {
    if (t->defined()) *t = t->squeeze(0);
  }
  return results;
}

// ---- Ops ----------------------------------------------------------------------------------------

}  // namespace

void check_sequences(const char* op, const char* name, const optional_tensor& state,
                     const optional_tensor& cu_seqlens) {
  if (!cu_seqlens) return;
  TORCH_CHECK_VALUE(!TORCH_GUARD_OR_FALSE(cu_seqlens->sym_numel().sym_eq(0)), op,
                    ": cu_seqlens must have shape [sequences + 1], got [0]");
  if (!state) return;
  const SymInt sequences = cu_seqlens->sym_numel() - 1;
  TORCH_CHECK_VALUE(TORCH_GUARD_OR_TRUE(state->sym_size(0).sym_eq(sequences)), op, ": ", name,
                    " must have a state of each of ", sequences, " sequences, got ",
                    state->sym_size(0));
}

namespace {

struct linear_attention_backward : gradients_of<"linear_attention"> {
  static constexpr divisibility relation{"H", "Hk"};
  static constexpr argument_list arguments{
      tensor("dout", dtype_rule::floating, "B,S,H,V").if_packed("T,H,V"),
      optional(tensor("dfinal_state", dtype_rule::statistics, "B,H,K,V").if_packed("N,H,K,V")),
      tensor("q", dtype_rule::same, "B,S,Hk,K").if_packed("T,Hk,K"),
      tensor("k", dtype_rule::same, "B,S,Hk,K").if_packed("T,Hk,K"),
      tensor("v", dtype_rule::same, "B,S,H,V").if_packed("T,H,V"),
      optional(tensor("log_decay", dtype_rule::statistics, "B,S,H").if_packed("T,H")),
      optional(number("scale")),
      optional(tensor("initial_state", dtype_rule::statistics, "B,H,K,V").if_packed("N,H,K,V")),
      needs<5>(),
      optional(tensor("cu_seqlens", dtype_rule::index, "N1")).otherwise("None").only_if_packed(),
  };
  static constexpr result_list results{like("dq", "q"), like("dk", "k"), like("dv", "v"),
                                       like_if_given("dlog_decay", "log_decay"),
                                       like_if_given("dinitial_state", "initial_state")};

  static linear_attention_gradients compute(const Tensor& dout, const optional_tensor& dfinal_state,
                                            const Tensor& q, const Tensor& k, const Tensor& v,
                                            const optional_tensor& log_decay,
                                            std::optional<double> scale,
                                            const optional_tensor& initial_state,
                                            std::array<bool, 5> needs,
                                            const optional_tensor& cu_seqlens) {
    check_sequences(name, "dfinal_state", dfinal_state, cu_seqlens);
    check_sequences(name, "initial_state", initial_state, cu_seqlens);
    return compute_backward(
        {{q, k, v, log_decay, scale, initial_state, cu_seqlens}, dout, dfinal_state, needs});
  }
};

struct linear_attention {
  using backward = linear_attention_backward;
  static constexpr const char* name = "linear_attention";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr divisibility relation{"H", "Hk"};
  static constexpr argument_list arguments{
      tensor("q", dtype_rule::floating, "B,S,Hk,K").if_packed("T,Hk,K"),
      tensor("k", dtype_rule::same, "B,S,Hk,K").if_packed("T,Hk,K"),
      tensor("v", dtype_rule::same, "B,S,H,V").if_packed("T,H,V"),
      optional(tensor("log_decay", dtype_rule::statistics, "B,S,H").if_packed("T,H"))
          .otherwise("None"),
      optional(number("scale")).otherwise("None"),
      optional(tensor("initial_state", dtype_rule::statistics, "B,H,K,V").if_packed("N,H,K,V"))
          .otherwise("None"),
      optional(tensor("cu_seqlens", dtype_rule::index, "N1")).otherwise("None").only_if_packed(),
  };
  static constexpr result_list results{result{.name = "o", .gradient = "dout", .shape = "B,S,H,V"},
                                       result{.name = "final_state", .shape = "B,H,K,V"}};
  static constexpr size_t kReturned = 1;

  static void check_options(const auto&... args) {
    const linear_attention_call c{args...};
    check_sequences(name, "initial_state", c.initial_state, c.cu_seqlens);
  }

  static linear_attention_results meta(const auto&... args) {
    const linear_attention_call c{args...};
    return {empty_contiguous(c.v), c.empty_state()};
  }

  static linear_attention_results compute(bool wants_state, const auto&... args) {
    return compute_forward({args...}, wants_state);
  }
};

const register_ops<linear_attention, linear_attention_backward> registered_linear_attention;

}  // namespace
}  // namespace thunderkittens
