// mamba2 as torch ops.
//
//   dt'(t) = clamp(softplus(dt(t) + dt_bias), dt_min, dt_max)
//   S(t)   = e^(dt'(t) A) S(t − 1) + dt'(t) x(t) B(t)ᵀ,   y(t) = S(t) C(t) + D x(t)
//
// `mamba2` gives y, `mamba2_forward` also the final state, `mamba2_backward` the gradients, from
// the inputs alone: nothing else is saved. The ATen implementation is in mamba2_aten.cpp.
#include <ATen/ATen.h>

#include <limits>

#include "binding/launch.h"
#include "binding/op.h"
#include "binding/tma_operand.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/torch/linear_attention_call.hpp"
#include "kernels/mamba2/mamba2.h"
#include "kernels/mamba2/torch/mamba2_call.hpp"

namespace thunderkittens {
namespace {

const kernel kMamba2Kernel("mamba2", kLinearAttention);
const kernel kMamba2BackwardKernel("mamba2_backward", kLinearAttention);

// ---- The kernels --------------------------------------------------------------------------------

linear_attention_strides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

// What `mamba2_problem::dt_in_words` asks for, of an even number of heads.
bool is_in_words(const Tensor& dt) {
  if (dt.element_size() == 4) return true;
  const auto even = [&](int64_t i) { return dt.size(i) == 1 || dt.stride(i) % 2 == 0; };
  return dt.stride(2) == 1 && even(0) && even(1) &&
         reinterpret_cast<uintptr_t>(dt.const_data_ptr()) % 4 == 0;
}

mamba2_problem problem_of(const mamba2_call& c) {
  return {
      .batch = c.x.size(0),
      .length = c.x.size(1),
      .heads = c.x.size(2),
      .groups = c.B.size(2),
      .state_width = c.B.size(3),
      .head_width = c.x.size(3),
      .x_strides = strides_of(c.x),
      .b_strides = strides_of(c.B),
      .c_strides = strides_of(c.C),
      .dt_strides = strides_of(c.dt),
      .dt_min = c.dt_min,
      .dt_max = c.dt_max.value_or(std::numeric_limits<double>::infinity()),
      .softplus = c.dt_softplus,
      .type = kernel_dtype_or_float(c.x.scalar_type()),
      .dt_type = kernel_dtype_or_float(c.dt.scalar_type()),
      .sequences = c.cu_seqlens ? c.cu_seqlens->numel() - 1 : 0,
      .int64_seqlens = c.cu_seqlens && c.cu_seqlens->scalar_type() == at::kLong,
      .dt_in_words = is_in_words(c.dt),
  };
}

template <class Problem>
std::string why_torch(const mamba2_call& c, const Problem& problem) {
  return c.x.scalar_type() == at::kDouble ? "float64 is computed by torch"
                                          : why_unsupported(problem);
}

// Packed sequences, [T, …], as one batch, [1, T, …].
mamba2_call in_one_batch(const mamba2_call& given) {
  mamba2_call c = given;
  if (!c.cu_seqlens) return c;
  for (Tensor* t : {&c.x, &c.dt, &c.B, &c.C}) *t = t->unsqueeze(0);
  return c;
}

// Nothing to compute: no token of any head, or no sequence.
bool is_empty(const mamba2_call& c) {
  return c.x.size(0) == 0 || c.x.size(1) == 0 || c.x.size(2) == 0 ||
         (c.cu_seqlens && c.cu_seqlens->numel() == 1);
}

// What kernels read as contiguous float32: of a head, and states.
Tensor contiguous(const optional_tensor& t) { return t ? t->contiguous() : Tensor(); }
float* new_data_of(const Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

Tensor empty_state(const mamba2_call& c) {
  const auto type = c.x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto sequences = c.cu_seqlens ? c.cu_seqlens->sym_numel() - 1 : c.x.sym_size(0);
  return at::empty_symint({sequences, c.x.sym_size(-2), c.x.sym_size(-1), c.B.sym_size(-1)},
                          c.x.options().dtype(type));
}
// [B, S, H], and more if need be.
Tensor empty_of_tokens(const mamba2_call& c, std::optional<int64_t> more = std::nullopt) {
  c10::SmallVector<int64_t, 4> sizes{c.x.size(0), c.x.size(1), c.x.size(2)};
  if (more) sizes.push_back(*more);
  return at::empty(sizes, c.x.options().dtype(at::kFloat));
}

// Of dt' and dt' A: [B, S, H], in memory [B, H, S].
Tensor empty_gates(const mamba2_call& c) {
  return at::empty({c.x.size(0), c.x.size(2), c.x.size(1)}, c.x.options().dtype(at::kFloat))
      .transpose(1, 2);
}

mamba2_results forward_by_kernel(const decision& d, const mamba2_call& given, bool wants_state) {
  mamba2_call c = given;
  for (Tensor* t : {&c.x, &c.B, &c.C}) *t = tma_operand(*t);
  const mamba2_problem problem = problem_of(c);
  const bool apart = !makes_gates(problem, *d.on);
  const Tensor A = floats(c.A), D = floats(c.D), bias = floats(c.dt_bias),
               initial = floats(c.initial_state), y = empty_contiguous(c.x),
               steps = apart ? empty_gates(c) : Tensor(),
               log_decay = apart ? empty_gates(c) : Tensor(),
               final = wants_state ? empty_state(c) : Tensor(), ends = contiguous(c.cu_seqlens);
  launch(d, problem,
         mamba2_tensors{
             .x = c.x.const_data_ptr(),
             .dt = c.dt.const_data_ptr(),
             .a = data_of(A),
             .b = c.B.const_data_ptr(),
             .c = c.C.const_data_ptr(),
             .y = y.mutable_data_ptr(),
             .steps = new_data_of(steps),
             .log_decay = new_data_of(log_decay),
             .d = data_of(D),
             .dt_bias = data_of(bias),
             .initial_state = data_of(initial),
             .final_state = new_data_of(final),
             .cu_seqlens = ends.defined() ? ends.const_data_ptr() : nullptr,
         });
  return {y, final};
}

mamba2_results compute_in_batch(const mamba2_call& c, bool wants_state) {
  if (is_empty(c) && explaining() == nullptr) {
    Tensor state;
    if (wants_state) {
      state = c.initial_state ? c.initial_state->clone(at::MemoryFormat::Contiguous)
                              : empty_state(c).zero_();
    }
    return {at::zeros_like(c.x, at::MemoryFormat::Contiguous), state};
  }
  const decision d = decide(kMamba2Kernel, c.x.device(), why_torch(c, problem_of(c)));
  if (d.explained) {
    if (d.on == nullptr) return {};
    note_tma_copy(c.x, "x");
    note_tma_copy(c.B, "B");
    note_tma_copy(c.C, "C");
    return {};
  }
  return d.on == nullptr ? mamba2_by_aten(c) : forward_by_kernel(d, c, wants_state);
}

mamba2_results compute_forward(const mamba2_call& c, bool wants_state) {
  mamba2_results results = compute_in_batch(in_one_batch(c), wants_state);
  if (c.cu_seqlens && results[0].defined()) results[0] = results[0].squeeze(0);
  return results;
}

mamba2_gradients backward_by_kernel(const decision& d, const mamba2_backward_call& b) {
  mamba2_call c = b.forward;
  for (Tensor* t : {&c.x, &c.B, &c.C}) *t = tma_operand(*t);
  const Tensor dy = tma_operand(b.dy), A = floats(c.A), D = floats(c.D), bias = floats(c.dt_bias),
               initial = floats(c.initial_state), d_final = floats(b.dfinal_state),
               steps = empty_gates(c), log_decay = empty_gates(c), ends = contiguous(c.cu_seqlens);
  const bool gates = b.needs_gates(), needs_dD = b.needs[5] && c.D;
  const bool needs_state = b.needs[7] && c.initial_state;
  // The state's comes with dB, whatever else is wanted: the same bits.
  const bool needs_dc = b.needs[4] || gates || needs_dD,
             needs_db = b.needs[3] || gates || needs_state, needs_dx = b.needs[0];
  const int64_t width = c.B.size(3), parts = (width + 63) / 64;
  const auto of_heads = [&](bool needed) {
    return needed ? at::empty({c.x.size(0), c.x.size(1), c.x.size(2), width}, c.x.options())
                  : Tensor();
  };
  const auto of_tiles = [&](bool needed) {
    return needed
               ? at::empty({c.x.size(0) * ((c.x.size(1) + kMamba2GateTile - 1) / kMamba2GateTile),
                            c.x.size(2)},
                           c.x.options().dtype(at::kFloat))
               : Tensor();
  };
  const auto data = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
  const Tensor dx = needs_dx ? empty_contiguous(c.x) : Tensor(), dB = of_heads(needs_db),
               dC = of_heads(needs_dc), d_initial = needs_state ? empty_state(c) : Tensor(),
               c_dots = gates ? empty_of_tokens(c, parts) : Tensor(),
               b_dots = gates ? empty_of_tokens(c, parts) : Tensor(),
               x_dots = needs_dD ? empty_of_tokens(c) : Tensor(),
               d_log_decay = gates ? empty_of_tokens(c) : Tensor(),
               d_dt = b.needs[1] ? empty_contiguous(c.dt) : Tensor(), d_a = of_tiles(b.needs[2]),
               d_bias = of_tiles(b.needs[6] && c.dt_bias);
  launch(d, mamba2_backward_problem{problem_of(c), strides_of(dy), gates},
         mamba2_backward_tensors{
             .x = c.x.const_data_ptr(),
             .dt = c.dt.const_data_ptr(),
             .a = data_of(A),
             .b = c.B.const_data_ptr(),
             .c = c.C.const_data_ptr(),
             .dy = dy.const_data_ptr(),
             .steps = new_data_of(steps),
             .log_decay = new_data_of(log_decay),
             .d = data_of(D),
             .dt_bias = data_of(bias),
             .initial_state = data_of(initial),
             .d_final_state = data_of(d_final),
             .dx = data(dx),
             .db = data(dB),
             .dc = data(dC),
             .d_initial_state = new_data_of(d_initial),
             .c_dots = new_data_of(c_dots),
             .b_dots = new_data_of(b_dots),
             .x_dots = new_data_of(x_dots),
             .cu_seqlens = ends.defined() ? ends.const_data_ptr() : nullptr,
             .d_log_decay = new_data_of(d_log_decay),
             .d_dt = data(d_dt),
             .d_a = new_data_of(d_a),
             .d_dt_bias = new_data_of(d_bias),
         });
  mamba2_gradients results;
  if (b.needs[0]) results[0] = dx;
  if (b.needs[3]) results[3] = add_up_heads(dB, c.B);
  if (b.needs[4]) results[4] = add_up_heads(dC, c.C);
  if (needs_dD) results[5] = x_dots.sum(at::IntArrayRef({0, 1})).to(c.D->scalar_type());
  if (b.needs[1]) results[1] = d_dt;
  if (b.needs[2]) results[2] = d_a.sum(0);
  if (d_bias.defined()) results[6] = d_bias.sum(0).to(c.dt_bias->scalar_type());
  if (b.needs[7]) results[7] = d_initial;
  return results;
}

// Of no tokens: the state passes through.
mamba2_gradients gradients_of_nothing(const mamba2_backward_call& b) {
  const mamba2_call& c = b.forward;
  const optional_tensor inputs[] = {c.x, c.dt, c.A, c.B, c.C, c.D, c.dt_bias};
  mamba2_gradients results;
  for (size_t i = 0; i < std::size(inputs); ++i) {
    if (b.needs[i] && inputs[i]) {
      results[i] = at::zeros_like(*inputs[i], at::MemoryFormat::Contiguous);
    }
  }
  if (b.needs[7] && c.initial_state) {
    results[7] = b.dfinal_state ? b.dfinal_state->clone(at::MemoryFormat::Contiguous)
                                : empty_state(c).zero_();
  }
  return results;
}

mamba2_gradients compute_backward_in_batch(const mamba2_backward_call& b) {
  const mamba2_call& c = b.forward;
  if (is_empty(c)) return gradients_of_nothing(b);
  const mamba2_backward_problem problem{problem_of(c), {}};
  const decision d = decide(kMamba2BackwardKernel, c.x.device(), why_torch(c, problem));
  if (d.explained) return {};
  return d.on == nullptr ? mamba2_backward_by_aten(b) : backward_by_kernel(d, b);
}

mamba2_gradients compute_backward(const mamba2_backward_call& given) {
  if (!given.forward.cu_seqlens) return compute_backward_in_batch(given);
  mamba2_backward_call b = given;
  b.forward = in_one_batch(given.forward);
  b.dy = b.dy.unsqueeze(0);
  mamba2_gradients results = compute_backward_in_batch(b);
  for (Tensor* t : {&results[0], &results[1], &results[3], &results[4]}) {
    if (t->defined()) *t = t->squeeze(0);
  }
  return results;
}

// ---- Ops ----------------------------------------------------------------------------------------

struct mamba2_backward : gradients_of<"mamba2"> {
  static constexpr divisibility relation{"H", "Hk"};
  static constexpr argument_list arguments{
      tensor("dy", dtype_rule::floating, "B,S,H,P").if_packed("T,H,P"),
      optional(tensor("dfinal_state", dtype_rule::statistics, "B,H,P,N").if_packed("M,H,P,N")),
      tensor("x", dtype_rule::same, "B,S,H,P").if_packed("T,H,P"),
      tensor("dt", dtype_rule::same_or_float32, "B,S,H").if_packed("T,H"),
      tensor("A", dtype_rule::statistics, "H"),
      tensor("B", dtype_rule::same, "B,S,Hk,N").if_packed("T,Hk,N"),
      tensor("C", dtype_rule::same, "B,S,Hk,N").if_packed("T,Hk,N"),
      optional(tensor("D", dtype_rule::same_or_float32, "H")),
      optional(tensor("dt_bias", dtype_rule::same_or_float32, "H")),
      boolean("dt_softplus"),
      number("dt_min", 0),
      optional(number("dt_max", 0)),
      optional(tensor("initial_state", dtype_rule::statistics, "B,H,P,N").if_packed("M,H,P,N")),
      needs<8>(),
      optional(tensor("cu_seqlens", dtype_rule::index, "M1")).otherwise("None").only_if_packed(),
  };
  static constexpr result_list results{like("dx", "x"),
                                       like("ddt", "dt"),
                                       like("dA", "A"),
                                       like("dB", "B"),
                                       like("dC", "C"),
                                       like_if_given("dD", "D"),
                                       like_if_given("ddt_bias", "dt_bias"),
                                       like_if_given("dinitial_state", "initial_state")};

  static mamba2_gradients compute(const Tensor& dy, const optional_tensor& dfinal_state,
                                  const Tensor& x, const Tensor& dt, const Tensor& A,
                                  const Tensor& B, const Tensor& C, const optional_tensor& D,
                                  const optional_tensor& dt_bias, bool dt_softplus, double dt_min,
                                  std::optional<double> dt_max,
                                  const optional_tensor& initial_state, std::array<bool, 8> needs,
                                  const optional_tensor& cu_seqlens) {
    check_sequences(name, "dfinal_state", dfinal_state, cu_seqlens);
    check_sequences(name, "initial_state", initial_state, cu_seqlens);
    return compute_backward(
        {{x, dt, A, B, C, D, dt_bias, dt_softplus, dt_min, dt_max, initial_state, cu_seqlens},
         dy,
         dfinal_state,
         needs});
  }
};

struct mamba2 {
  using backward = mamba2_backward;
  static constexpr const char* name = "mamba2";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr divisibility relation{"H", "Hk"};
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "B,S,H,P").if_packed("T,H,P"),
      tensor("dt", dtype_rule::same_or_float32, "B,S,H").if_packed("T,H"),
      tensor("A", dtype_rule::statistics, "H"),
      tensor("B", dtype_rule::same, "B,S,Hk,N").if_packed("T,Hk,N"),
      tensor("C", dtype_rule::same, "B,S,Hk,N").if_packed("T,Hk,N"),
      optional(tensor("D", dtype_rule::same_or_float32, "H")).otherwise("None"),
      optional(tensor("dt_bias", dtype_rule::same_or_float32, "H")).otherwise("None"),
      boolean("dt_softplus").otherwise("False"),
      number("dt_min", 0).otherwise("0.0"),
      optional(number("dt_max", 0)).otherwise("None"),
      optional(tensor("initial_state", dtype_rule::statistics, "B,H,P,N").if_packed("M,H,P,N"))
          .otherwise("None"),
      optional(tensor("cu_seqlens", dtype_rule::index, "M1")).otherwise("None").only_if_packed(),
  };
  static constexpr result_list results{like("y", "x"),
                                       result{.name = "final_state", .shape = "B,H,P,N"}};
  static constexpr size_t kReturned = 1;

  static void check_options(const auto&... args) {
    const mamba2_call c{args...};
    check_sequences(name, "initial_state", c.initial_state, c.cu_seqlens);
    TORCH_CHECK_VALUE(!c.dt_max || *c.dt_max >= c.dt_min,
                      "mamba2: dt_max must be at least dt_min, ", c.dt_min, ", got ", *c.dt_max);
  }
  static mamba2_results meta(const auto&... args) {
    const mamba2_call c{args...};
    return {empty_contiguous(c.x), empty_state(c)};
  }

  static mamba2_results compute(bool wants_state, const auto&... args) {
    return compute_forward({args...}, wants_state);
  }
};

const register_ops<mamba2, mamba2_backward> registered_mamba2;

}  // namespace
}  // namespace thunderkittens
