// based_attention as torch ops (thunderkittens/kernels/based_attention.h: what it computes).
//
// `based_attention` gives o, `based_attention_forward` also the final state and sums,
// `based_attention_backward` the gradients, from the inputs alone: nothing else is saved. The ATen
// implementation is in based_attention_aten.cpp.
#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/op.h"
#include "binding/tma_operand.h"
#include "kernels/based_attention/based_attention.h"
#include "kernels/based_attention/torch/based_attention_call.hpp"

namespace thunderkittens {
namespace {

const kernel kBasedAttentionKernel("based_attention", kBasedAttention);
const kernel kBasedAttentionBackwardKernel("based_attention_backward", kBasedAttention);

// ---- Checks -------------------------------------------------------------------------------------

// [B, H, F] and what follows, where there is a state of that shape.
void check_features(const Tensor& q, const Tensor& state, const char* name) {
  const SymInt width = q.sym_size(3), twice = (width + 1) * (width + 2);
  TORCH_CHECK_VALUE((state.sym_size(2) * 2).sym_eq(twice).expect_true(__FILE__, __LINE__),
                    "based_attention: ", name, ".size(2) must be ", twice / 2,
                    ", the features of q.size(3) = ", width, ", got ", state.sym_size(2));
}

void check_call(const based_attention_call& c) {
  TORCH_CHECK_VALUE(!c.scale || *c.scale > 0, "based_attention: scale must be above 0, got ",
                    c.scale.value_or(0));
  if (c.initial_state) check_features(c.q, *c.initial_state, "initial_state");
  if (c.initial_sums) check_features(c.q, *c.initial_sums, "initial_sums");
}

// ---- The kernel ---------------------------------------------------------------------------------

based_attention_strides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

// Of the tensors as they are; what the kernel reads may be copies.
based_attention_problem problem_of(const based_attention_call& c) {
  return {
      .batch = c.v.size(0),
      .length = c.v.size(1),
      .heads = c.v.size(2),
      .key_width = c.q.size(3),
      .value_width = c.v.size(3),
      .q_strides = strides_of(c.q),
      .k_strides = strides_of(c.k),
      .v_strides = strides_of(c.v),
      .scale = c.scale_or_usual(),
      .eps = c.eps,
      .normalize = c.normalize,
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
}

template <class Problem>
std::string why_torch(const based_attention_call& c, const Problem& problem) {
  return c.q.scalar_type() == at::kDouble ? "float64 is computed by torch"
                                          : why_unsupported(problem);
}

// Nothing to compute, and nothing to choose: no token of any head.
bool is_empty(const based_attention_call& c) {
  return c.v.size(0) == 0 || c.v.size(1) == 0 || c.v.size(2) == 0;
}

// The state [B, H, F, V] and the sums [B, H, F]: without `normalize` none, [B, H, 0].
tensor_array<2> empty_states(const based_attention_call& c) {
  const SymInt batch = c.v.sym_size(0), heads = c.v.sym_size(2), width = c.q.sym_size(3);
  const SymInt count = (width + 1) * (width + 2) / 2;
  const auto options = c.q.options().dtype(statistics_dtype(c.q));
  return {at::empty_symint({batch, heads, count, c.v.sym_size(3)}, options),
          at::empty_symint({batch, heads, c.normalize ? count : SymInt(0)}, options)};
}

const float* floats_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}
float* new_floats_of(const Tensor& t) {
  return t.defined() && t.numel() > 0 ? t.mutable_data_ptr<float>() : nullptr;
}
Tensor contiguous(const optional_tensor& t) { return t ? t->contiguous() : Tensor(); }

based_attention_results forward_by_kernel(const decision& d, const based_attention_call& given,
                                          bool wants_states) {
  based_attention_call c = given;
  for (Tensor* t : {&c.q, &c.k, &c.v}) *t = tma_operand(*t);
  const Tensor state = contiguous(c.initial_state), sums = contiguous(c.initial_sums),
               o = empty_contiguous(c.v);
  tensor_array<2> final;
  if (wants_states) final = empty_states(c);
  launch(d, problem_of(c),
         based_attention_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .o = o.mutable_data_ptr(),
             .initial_state = floats_of(state),
             .initial_sums = floats_of(sums),
             .final_state = new_floats_of(final[0]),
             .final_sums = new_floats_of(final[1]),
         });
  return {o, final[0], final[1]};
}

// A copy of what was given, or zeros.
Tensor passed_through(const optional_tensor& given, const Tensor& empty) {
  return given ? given->clone(at::MemoryFormat::Contiguous) : empty.clone().zero_();
}

based_attention_results compute_forward(const based_attention_call& c, bool wants_states) {
  if (is_empty(c) && explaining() == nullptr) {
    if (!wants_states) return {empty_contiguous(c.v)};
    const auto [state, sums] = empty_states(c);
    return {empty_contiguous(c.v), passed_through(c.initial_state, state),
            passed_through(c.initial_sums, sums)};
  }
  const decision d = decide(kBasedAttentionKernel, c.q.device(), why_torch(c, problem_of(c)));
  if (d.explained) {
    if (d.on == nullptr) return {};
    note_tma_copy(c.q, "q");
    note_tma_copy(c.k, "k");
    note_tma_copy(c.v, "v");
    return {};
  }
  if (d.on != nullptr) return forward_by_kernel(d, c, wants_states);
  based_attention_results results = based_attention_by_aten(c);
  if (!results[2].defined()) results[2] = empty_states(c)[1];
  return results;
}

based_attention_gradients backward_by_kernel(const decision& d,
                                             const based_attention_backward_call& b) {
  based_attention_call c = b.forward;
  for (Tensor* t : {&c.q, &c.k, &c.v}) *t = tma_operand(*t);
  const Tensor dout = tma_operand(b.dout), state = contiguous(c.initial_state),
               sums = contiguous(c.initial_sums), d_state = contiguous(b.dfinal_state),
               d_sums = contiguous(b.dfinal_sums);
  based_attention_gradients results;
  if (b.needs[0]) results[0] = empty_contiguous(c.q);
  if (b.needs[1]) results[1] = empty_contiguous(c.k);
  if (b.needs[2]) results[2] = empty_contiguous(c.v);
  if (b.needs[3] && c.initial_state) results[3] = empty_contiguous(*c.initial_state);
  if (b.needs[4] && c.initial_sums && c.normalize) results[4] = empty_contiguous(*c.initial_sums);
  const auto data = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
  launch(d, based_attention_backward_problem{problem_of(c), strides_of(dout)},
         based_attention_backward_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .d_o = dout.const_data_ptr(),
             .initial_state = floats_of(state),
             .initial_sums = floats_of(sums),
             .d_final_state = floats_of(d_state),
             .d_final_sums = c.normalize ? floats_of(d_sums) : nullptr,
             .dq = data(results[0]),
             .dk = data(results[1]),
             .dv = data(results[2]),
             .d_initial_state = new_floats_of(results[3]),
             .d_initial_sums = new_floats_of(results[4]),
         });
  return results;
}

// Of no tokens: the states pass through.
based_attention_gradients gradients_of_nothing(const based_attention_backward_call& b) {
  const based_attention_call& c = b.forward;
  const auto [state, sums] = empty_states(c);
  based_attention_gradients results;
  if (b.needs[0]) results[0] = at::zeros_like(c.q, at::MemoryFormat::Contiguous);
  if (b.needs[1]) results[1] = at::zeros_like(c.k, at::MemoryFormat::Contiguous);
  if (b.needs[2]) results[2] = at::zeros_like(c.v, at::MemoryFormat::Contiguous);
  if (b.needs[3] && c.initial_state) results[3] = passed_through(b.dfinal_state, state);
  if (b.needs[4] && c.initial_sums) results[4] = passed_through(b.dfinal_sums, sums);
  return results;
}

based_attention_gradients compute_backward(const based_attention_backward_call& b) {
  const based_attention_call& c = b.forward;
  if (is_empty(c)) return gradients_of_nothing(b);
  const based_attention_backward_problem problem{problem_of(c), {}};
  const decision d = decide(kBasedAttentionBackwardKernel, c.q.device(), why_torch(c, problem));
  if (d.explained) return {};
  based_attention_gradients results =
      d.on == nullptr ? based_attention_backward_by_aten(b) : backward_by_kernel(d, b);
  if (b.needs[4] && c.initial_sums && !c.normalize) {  // which do not count
    results[4] = at::zeros_like(*c.initial_sums, at::MemoryFormat::Contiguous);
  }
  return results;
}

// ---- Ops ----------------------------------------------------------------------------------------

struct based_attention_backward : gradients_of<"based_attention"> {
  static constexpr argument_list arguments{
      tensor("dout", dtype_rule::floating, "B,S,H,V"),
      optional(tensor("dfinal_state", dtype_rule::statistics, "B,H,Phi,V")),
      optional(tensor("dfinal_sums", dtype_rule::statistics, "B,H,G")),  // G: F, or 0
      tensor("q", dtype_rule::same, "B,S,H,D"),
      tensor("k", dtype_rule::same, "B,S,H,D"),
      tensor("v", dtype_rule::same, "B,S,H,V"),
      boolean("normalize"),
      number("eps", 0.0),
      optional(number("scale")),
      optional(tensor("initial_state", dtype_rule::statistics, "B,H,Phi,V")),
      optional(tensor("initial_sums", dtype_rule::statistics, "B,H,Phi")),
      needs<5>(),
  };
  static constexpr result_list results{like("dq", "q"), like("dk", "k"), like("dv", "v"),
                                       like_if_given("dinitial_state", "initial_state"),
                                       like_if_given("dinitial_sums", "initial_sums")};

  static void check_options(const Tensor&, const optional_tensor&, const optional_tensor&,
                            const auto&... args) {
    const auto list = std::tie(args...);
    [&]<size_t... I>(std::index_sequence<I...>) {
      check_call({std::get<I>(list)...});
    }(std::make_index_sequence<8>());
  }

  static based_attention_gradients compute(const Tensor& dout, const optional_tensor& dfinal_state,
                                           const optional_tensor& dfinal_sums, const Tensor& q,
                                           const Tensor& k, const Tensor& v, bool normalize,
                                           double eps, std::optional<double> scale,
                                           const optional_tensor& initial_state,
                                           const optional_tensor& initial_sums,
                                           std::array<bool, 5> needs) {
    return compute_backward({{q, k, v, normalize, eps, scale, initial_state, initial_sums},
                             dout,
                             dfinal_state,
                             dfinal_sums,
                             needs});
  }
};

struct based_attention {
  using backward = based_attention_backward;
  static constexpr const char* name = "based_attention";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr argument_list arguments{
      tensor("q", dtype_rule::floating, "B,S,H,D"),
      tensor("k", dtype_rule::same, "B,S,H,D"),
      tensor("v", dtype_rule::same, "B,S,H,V"),
      boolean("normalize").otherwise("True"),
      number("eps", 0.0).otherwise("1e-12"),
      optional(number("scale")).otherwise("None"),
      optional(tensor("initial_state", dtype_rule::statistics, "B,H,Phi,V")).otherwise("None"),
      optional(tensor("initial_sums", dtype_rule::statistics, "B,H,Phi")).otherwise("None"),
  };
  static constexpr result_list results{result{.name = "o", .gradient = "dout", .shape = "B,S,H,V"},
                                       result{.name = "final_state", .shape = "B,H,Phi,V"},
                                       result{.name = "final_sums", .shape = "B,H,Phi"}};
  static constexpr size_t kReturned = 1;

  static void check_options(const auto&... args) { check_call({args...}); }

  static based_attention_results meta(const auto&... args) {
    const based_attention_call c{args...};
    const auto [state, sums] = empty_states(c);
    return {empty_contiguous(c.v), state, sums};
  }

  static based_attention_results compute(bool wants_states, const auto&... args) {
    return compute_forward({args...}, wants_states);
  }
};

const register_ops<based_attention, based_attention_backward> registered_based_attention;

}  // namespace
}  // namespace thunderkittens
