// linear_attention_step as a torch op: one token, of which the state is updated in place.
//
//   S ← e^g S + k vᵀ,   o = scale · Sᵀ q
//
// The state of batch b is state[b], or state[state_indices[b]]: indices stay on the device, and one
// that is of no state is a padding slot's, whose o is 0.
#include <ATen/ATen.h>

#include <cmath>

#include "binding/attention_scale.h"
#include "binding/functional.h"
#include "binding/indexed_states.h"
#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/linear_attention/linear_attention_step.h"

namespace thunderkittens {
namespace {

const kernel kLinearAttentionStepKernel("linear_attention_step", kLinearAttentionStep);

// What a call was given.
struct step_call {
  const Tensor &q, &k, &v, &state;
  const optional_tensor& log_decay;
  const std::optional<double>& scale;
  const optional_tensor& state_indices;

  double scale_or_usual() const { return attention_scale(scale, q.size(-1)); }
};

// ---- Checks -------------------------------------------------------------------------------------

void check_state(const step_call& c) {
  check_states("linear_attention_step", "q", c.q, c.state, c.state_indices);
  const SymInt last = c.state.sym_stride(-1);
  TORCH_CHECK_VALUE(
      TORCH_GUARD_OR_FALSE(c.state.sym_size(-1).sym_le(1)) || TORCH_GUARD_OR_FALSE(last.sym_eq(1)),
      "linear_attention_step: state must have a last stride of 1, since it is updated in place, "
      "got strides ",
      c.state.sym_strides());
}

void check_writable(const step_call& c) {
  check_no_overlap("linear_attention_step", "state", c.state, ", since it is updated in place");
}

// ---- ATen ---------------------------------------------------------------------------------------

// [B, Hk, K] to [B, H, K], in the dtype of the state.
Tensor of_heads(const step_call& c, const Tensor& t) {
  const int64_t heads = c.v.size(1);
  const Tensor exact = t.to(c.state.scalar_type());
  return t.size(1) == heads ? exact : exact.repeat_interleave(heads / t.size(1), 1);
}

// The new states of the batch from the old ones, [B, H, K, V].
Tensor next_states(const step_call& c, const Tensor& old) {
  const Tensor decayed = c.log_decay ? old * c.log_decay->exp().unsqueeze(-1).unsqueeze(-1) : old;
  return at::addcmul(decayed, of_heads(c, c.k).unsqueeze(-1),
                     c.v.to(old.scalar_type()).unsqueeze(-2));
}

// o [B, H, V] of the new states. (A product and a sum: a matrix product may be of TF32.)
Tensor read_out(const step_call& c, const Tensor& states) {
  const Tensor o = (of_heads(c, c.q).unsqueeze(-1) * states).sum(-2);
  return o.mul_(c.scale_or_usual()).to(c.v.scalar_type());
}

Tensor step_of_some(const step_call& c) {
  if (c.state.size(0) == 0) return at::zeros(c.v.sizes(), c.v.options());
  const indexed_states states(c.state, *c.state_indices);
  const Tensor next = next_states(c, states.values());
  states.update(next);
  return states.without_padding(read_out(c, next));
}

Tensor step_by_aten(const step_call& c) {
  if (c.state_indices) return step_of_some(c);
  const Tensor next = next_states(c, c.state);
  c.state.copy_(next);
  return read_out(c, next);
}

// ---- The kernel ---------------------------------------------------------------------------------

linear_attention_step_strides step_strides_of(const Tensor& t) {
  return {stride_of(t, 0), stride_of(t, 1), stride_of(t, 2)};
}

linear_attention_step_problem problem_of(const step_call& c) {
  return {
      .batch = c.q.size(0),
      .heads = c.v.size(1),
      .key_heads = c.q.size(1),
      .key_width = c.q.size(2),
      .value_width = c.v.size(2),
      .states = c.state.size(0),
      .q_strides = step_strides_of(c.q),
      .k_strides = step_strides_of(c.k),
      .v_strides = step_strides_of(c.v),
      .state_stride = stride_of(c.state, 0),
      .state_head_stride = stride_of(c.state, 1),
      .state_key_stride = stride_of(c.state, 2),
      .decay_batch_stride = c.log_decay ? stride_of(*c.log_decay, 0) : 0,
      .decay_head_stride = c.log_decay ? stride_of(*c.log_decay, 1) : 0,
      .int64_indices = is_int64(c.state_indices),
      .scale = c.scale_or_usual(),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
}

Tensor step_by_kernel(const decision& d, const linear_attention_step_problem& problem,
                      const step_call& c) {
  const Tensor o = empty_contiguous(c.v),
               indices = c.state_indices ? c.state_indices->contiguous() : Tensor();
  launch(d, problem,
         linear_attention_step_tensors{
             .q = c.q.const_data_ptr(),
             .k = c.k.const_data_ptr(),
             .v = c.v.const_data_ptr(),
             .o = o.mutable_data_ptr(),
             .state = c.state.mutable_data_ptr<float>(),
             .log_decay = c.log_decay ? c.log_decay->const_data_ptr<float>() : nullptr,
             .state_indices = indices.defined() ? indices.const_data_ptr() : nullptr,
         });
  return o;
}

// ---- Ops ----------------------------------------------------------------------------------------

constexpr argument_list kArguments{
    tensor("q", dtype_rule::floating, "B,Hk,K"),
    tensor("k", dtype_rule::same, "B,Hk,K"),
    tensor("v", dtype_rule::same, "B,H,V"),
    tensor("state", dtype_rule::statistics, "N,H,K,V"),
    optional(tensor("log_decay", dtype_rule::statistics, "B,H")).otherwise("None"),
    optional(number("scale")).otherwise("None"),
    optional(tensor("state_indices", dtype_rule::index, "B")).otherwise("None"),
};

// o; undefined where the caller only asks.
Tensor compute_step(const step_call& c) {
  check_writable(c);
  const bool is_empty = c.v.numel() == 0;
  if (is_empty && explaining() == nullptr) return empty_contiguous(c.v);
  const linear_attention_step_problem problem = problem_of(c);
  const decision d = decide(kLinearAttentionStepKernel, c.q, problem);
  if (d.explained) return {};
  return d.on == nullptr ? step_by_aten(c) : step_by_kernel(d, problem, c);
}

constexpr std::string_view kInPlace =
    "the state is updated in place: call it under torch.no_grad(), or linear_attention with an "
    "initial_state";

struct linear_attention_step {
  static constexpr const char* name = "linear_attention_step";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr divisibility relation{"H", "Hk"};
  static constexpr argument_list arguments = kArguments;
  static constexpr result_list results{like("o", "v")};
  static constexpr size_t kWritten = 1, kFirstWritten = 3;
  static constexpr std::string_view kNoGradient = kInPlace;
  static constexpr bool kCountsVersions = true;

  static void check_options(const auto&... args) { check_state({args...}); }
  static tensor_array<1> compute(const auto&... args) { return {compute_step({args...})}; }
};

using linear_attention_step_functional = functional_form<linear_attention_step>;

const register_ops<linear_attention_step, linear_attention_step_functional>
    registered_linear_attention_step;

}  // namespace
}  // namespace thunderkittens
