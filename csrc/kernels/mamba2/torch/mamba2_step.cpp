// mamba2_step as a torch op: one token, of which the state is updated in place.
//
//   S ← e^(dt' A) S + dt' x Bᵀ,   y = (S C + D x) · silu(z),   dt' = softplus(dt + dt_bias)
//
// The state of batch b is state[b], or state[state_indices[b]]: indices stay on the device, and one
// that is of no state is padding's, whose y is 0.
#include <ATen/ATen.h>

#include "binding/functional.h"
#include "binding/indexed_states.h"
#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/mamba2/mamba2.h"

namespace thunderkittens {
namespace {

const kernel kMamba2StepKernel("mamba2_step", kMamba2Step);

// What a call was given.
struct step_call {
  const Tensor &x, &dt, &A, &B, &C, &state;
  const optional_tensor &D, &z, &dt_bias;
  bool dt_softplus;
  const optional_tensor& state_indices;
};

// ---- Checks -------------------------------------------------------------------------------------

void check_state(const step_call& c) {
  check_states("mamba2_step", "x", c.x, c.state, c.state_indices);
}

void check_writable(const step_call& c) {
  check_no_overlap("mamba2_step", "state", c.state, ", since it is updated in place");
}

// ---- ATen ---------------------------------------------------------------------------------------

// The new states of the batch from the old ones, [B, H, P, N], and y.
std::pair<Tensor, Tensor> update(const step_call& c, const Tensor& old) {
  const at::ScalarType type = c.state.scalar_type();
  const auto of_heads = [&](const Tensor& t) {  // [B, G, N] to [B, H, 1, N]
    return t.to(type).repeat_interleave(c.x.size(1) / t.size(1), 1).unsqueeze(-2);
  };
  Tensor step = c.dt.to(type);
  if (c.dt_bias) step = step + c.dt_bias->to(type);
  if (c.dt_softplus) step = at::softplus(step);
  const Tensor x = c.x.to(type), decay = at::exp(step * c.A);
  const auto wide = [](const Tensor& t) { return t.unsqueeze(-1).unsqueeze(-1); };
  const Tensor next =
      at::addcmul(old * wide(decay), (x * step.unsqueeze(-1)).unsqueeze(-1), of_heads(c.B));
  Tensor y = (next * of_heads(c.C)).sum(-1);
  if (c.D) y = y + x * c.D->to(type).unsqueeze(-1);
  if (c.z) y = y * at::silu(c.z->to(type));
  return {next, y.to(c.x.scalar_type()).contiguous()};
}

Tensor step_of_some(const step_call& c) {
  if (c.state.size(0) == 0) return at::zeros(c.x.sizes(), c.x.options());
  const indexed_states states(c.state, *c.state_indices);
  const auto [next, y] = update(c, states.values());
  states.update(next);
  return states.without_padding(y);
}

Tensor step_by_aten(const step_call& c) {
  if (c.state_indices) return step_of_some(c);
  const auto [next, y] = update(c, c.state);
  c.state.copy_(next);
  return y;
}

// ---- The kernel ---------------------------------------------------------------------------------

mamba2_step_strides step_strides_of(const Tensor& t) { return {stride_of(t, 0), stride_of(t, 1)}; }

mamba2_step_problem problem_of(const step_call& c) {
  return {
      .batch = c.x.size(0),
      .heads = c.x.size(1),
      .groups = c.B.size(1),
      .head_width = c.x.size(2),
      .state_width = c.B.size(2),
      .states = c.state.size(0),
      .x_strides = step_strides_of(c.x),
      .b_strides = step_strides_of(c.B),
      .c_strides = step_strides_of(c.C),
      .z_strides = c.z ? step_strides_of(*c.z) : mamba2_step_strides{},
      .dt_strides = step_strides_of(c.dt),
      .state_stride = stride_of(c.state, 0),
      .state_head_stride = stride_of(c.state, 1),
      .state_row_stride = stride_of(c.state, 2),
      .softplus = c.dt_softplus,
      .int64_indices = c.state_indices && c.state_indices->scalar_type() == at::kLong,
      .type = kernel_dtype_or_float(c.x.scalar_type()),
      .dt_type = kernel_dtype_or_float(c.dt.scalar_type()),
  };
}

std::string why_torch(const step_call& c, const mamba2_step_problem& problem) {
  if (c.x.scalar_type() == at::kDouble) return "float64 is computed by torch";
  if (c.state.size(3) > 1 && c.state.stride(3) != 1) {
    return "the elements of a state's row are not neighbours";
  }
  return why_unsupported(problem);
}

// With neighbours as elements of a row.
Tensor with_rows(const Tensor& t) {
  return t.size(-1) <= 1 || t.stride(-1) == 1 ? t : t.contiguous();
}

Tensor step_by_kernel(const decision& d, const step_call& given) {
  const Tensor x = with_rows(given.x), B = with_rows(given.B), C = with_rows(given.C);
  const optional_tensor z = given.z ? optional_tensor(with_rows(*given.z)) : std::nullopt;
  const step_call c{x,
                    given.dt,
                    given.A,
                    B,
                    C,
                    given.state,
                    given.D,
                    z,
                    given.dt_bias,
                    given.dt_softplus,
                    given.state_indices};
  const Tensor A = floats(c.A), D = floats(c.D), bias = floats(c.dt_bias),
               y = empty_contiguous(c.x),
               indices = c.state_indices ? c.state_indices->contiguous() : Tensor();
  launch(d, problem_of(c),
         mamba2_step_tensors{
             .x = c.x.const_data_ptr(),
             .dt = c.dt.const_data_ptr(),
             .a = data_of(A),
             .b = c.B.const_data_ptr(),
             .c = c.C.const_data_ptr(),
             .y = y.mutable_data_ptr(),
             .state = c.state.mutable_data_ptr<float>(),
             .d = data_of(D),
             .z = c.z ? c.z->const_data_ptr() : nullptr,
             .dt_bias = data_of(bias),
             .state_indices = indices.defined() ? indices.const_data_ptr() : nullptr,
         });
  return y;
}

// ---- The op -------------------------------------------------------------------------------------

struct mamba2_step {
  static constexpr const char* name = "mamba2_step";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr divisibility relation{"H", "Hk"};
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "B,H,P"),
      tensor("dt", dtype_rule::same_or_float32, "B,H"),
      tensor("A", dtype_rule::statistics, "H"),
      tensor("B", dtype_rule::same, "B,Hk,N"),
      tensor("C", dtype_rule::same, "B,Hk,N"),
      tensor("state", dtype_rule::statistics, "M,H,P,N"),
      optional(tensor("D", dtype_rule::same_or_float32, "H")).otherwise("None"),
      optional(tensor("z", dtype_rule::same, "B,H,P")).otherwise("None"),
      optional(tensor("dt_bias", dtype_rule::same_or_float32, "H")).otherwise("None"),
      boolean("dt_softplus").otherwise("False"),
      optional(tensor("state_indices", dtype_rule::index, "B")).otherwise("None"),
  };
  static constexpr result_list results{like("y", "x")};
  static constexpr size_t kWritten = 1, kFirstWritten = 5;
  static constexpr std::string_view kNoGradient =
      "the state is updated in place: call it under torch.no_grad(), or mamba2 with an "
      "initial_state";
  static constexpr bool kCountsVersions = true;

  static void check_options(const auto&... args) { check_state({args...}); }
  // y; undefined where the caller only asks.
  static tensor_array<1> compute(const auto&... args) {
    const step_call c{args...};
    check_writable(c);
    if (c.x.numel() == 0 && explaining() == nullptr) return {empty_contiguous(c.x)};
    const decision d = decide(kMamba2StepKernel, c.x.device(), why_torch(c, problem_of(c)));
    if (d.explained) return {};
    return {d.on == nullptr ? step_by_aten(c) : step_by_kernel(d, c)};
  }
};

using mamba2_step_functional = functional_form<mamba2_step>;

const register_ops<mamba2_step, mamba2_step_functional> registered_mamba2_step;

}  // namespace
}  // namespace thunderkittens
