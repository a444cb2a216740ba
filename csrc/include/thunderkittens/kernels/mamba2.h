// Mamba-2's state-space dual, forward and backward: what to compute, where, and the launches. Plain
// C++ without torch.
//
//   dt'(t) = clamp(softplus(dt(t) + dt_bias), dt_min, dt_max)
//   S(t)   = e^(dt'(t) A) S(t − 1) + dt'(t) x(t) B(t)ᵀ,   y(t) = S(t) C(t) + D x(t)
//
// for each head; head h reads head h / (heads / groups) of B and C. That is linear attention with
// C, B and x as q, k and v, weights dt', decays e^(dt' A) and D as what skips; one launch makes dt'
// and dt' A.
#pragma once

#include <limits>
#include <string>

#include "thunderkittens/kernels/common.h"
#include "thunderkittens/kernels/linear_attention.h"

namespace thunderkittens {

struct mamba2_gate_gradients_params;
struct mamba2_gates_params;

// Tokens over which the backward adds up the gradients of A and dt_bias.
inline constexpr int64_t kMamba2GateTile = 256;

// As linear_attention_problem, with B's and C's width as keys' and x's as values'.
struct mamba2_problem {
  int64_t batch, length, heads, groups, state_width, head_width;
  linear_attention_strides x_strides, b_strides, c_strides;
  linear_attention_strides dt_strides;                                  // any
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();  // dt_min at least 0
  bool softplus = false;
  dtype type, dt_type;  // of dt: `type` or float32
  // More than 0: so many sequences are packed one behind the other into one batch. States are then
  // those of [sequences, …]; all results of a token of no sequence are 0.
  int64_t sequences = 0;
  bool int64_seqlens = false;  // else int32
  // dt is float32, or the two heads from each even one on are 4 aligned bytes.
  bool dt_in_words = false;
};

struct mamba2_tensors {
  const void* x;   // [batch, length, heads, head_width] of `type`
  const void* dt;  // [batch, length, heads] of `dt_type`
  const float* a;  // [heads], at most 0
  const void* b;   // [batch, length, groups, state_width] of `type`
  const void* c;   // the same
  void* y;         // as x, contiguous
  // dt' and dt' A, [batch, heads, length]: written, and read again; or null where makes_gates.
  float* steps;
  float* log_decay;
  const float* d = nullptr;              // [heads]; or null: 0
  const float* dt_bias = nullptr;        // [heads]; or null: 0
  const float* initial_state = nullptr;  // [batch, heads, head_width, state_width]; or null: zeros
  float* final_state = nullptr;          // the same; or null: not wanted
  const void* cu_seqlens = nullptr;      // [sequences + 1], where they start and end
};

// The gradients of a forward. TMA reads dy as it does x.
struct mamba2_backward_problem {
  mamba2_problem forward;
  linear_attention_strides dy_strides;
  bool gate_gradients = false;  // wanted, of dt, A or dt_bias; with dc, db and their dots
};

struct mamba2_backward_tensors {
  const void* x;
  const void* dt;
  const float* a;
  const void* b;
  const void* c;
  const void* dy;  // as x
  float* steps;
  float* log_decay;
  const float* d = nullptr;
  const float* dt_bias = nullptr;
  const float* initial_state = nullptr;
  const float* d_final_state = nullptr;  // as the states; or null: zeros
  // Results, contiguous; each may be null: not wanted. db and dc are those of each of `heads`: what
  // shares a group is still to be added up.
  void* dx = nullptr;                // as x
  void* db = nullptr;                // [batch, length, heads, state_width] of `type`
  void* dc = nullptr;                // the same
  float* d_initial_state = nullptr;  // with dx or db alone
  // C · dC and B · dB / dt' of each token and head, [batch, length, heads, (state_width + 63) /
  // 64], whose last dimension is still to be added up; with dc and with db alone; or null. The
  // latter is the gradient of dt' as a weight.
  float* c_dots = nullptr;
  float* b_dots = nullptr;
  float* x_dots = nullptr;  // dy · x, [batch, length, heads]: of D; with dc alone; or null
  const void* cu_seqlens = nullptr;
  // With gate_gradients. The first is written, and read again; the others may each be null: not
  // wanted.
  float* d_log_decay = nullptr;  // [batch, length, heads]: of dt' A
  void* d_dt = nullptr;          // the same, of `dt_type`
  // Of A and of dt_bias, [batch, (length + 255) / 256, heads], whose first dimensions are still to
  // be added up.
  float* d_a = nullptr;
  float* d_dt_bias = nullptr;
};

struct mamba2_plan {
  mamba2_problem problem;
  bound_kernel<mamba2_gates_params> gates;
  linear_attention_plan scan;
  workspace_size workspace;
};
struct mamba2_backward_plan {
  mamba2_backward_problem problem;
  bound_kernel<mamba2_gates_params> gates;
  linear_attention_backward_plan scan;
  workspace_size workspace;
  bound_kernel<mamba2_gate_gradients_params> gate_gradients;
};

// ---- One token ----------------------------------------------------------------------------------

struct mamba2_step_params;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct mamba2_step_strides {
  int64_t batch, head;
};

// The recurrence of one token, with the gate y · silu(z); S is updated in place. Any widths, up to
// 256 of a state's rows.
struct mamba2_step_problem {
  int64_t batch, heads, groups, head_width, state_width;
  int64_t states;  // that there are
  mamba2_step_strides x_strides, b_strides, c_strides, z_strides;
  mamba2_step_strides dt_strides;  // of [batch, heads]: the last one, too
  int64_t state_stride, state_head_stride, state_row_stride;
  bool softplus = false, int64_indices = false;
  dtype type, dt_type;  // of dt: `type` or float32
};

struct mamba2_step_tensors {
  const void* x;                        // [batch, heads, head_width] of `type`
  const void* dt;                       // [batch, heads] of `dt_type`
  const float* a;                       // [heads]
  const void* b;                        // [batch, groups, state_width] of `type`
  const void* c;                        // the same
  void* y;                              // as x, contiguous
  float* state;                         // [states, heads, head_width, state_width]
  const float* d = nullptr;             // [heads]; or null: 0
  const void* z = nullptr;              // as x; or null: no gate
  const float* dt_bias = nullptr;       // [heads]; or null: 0
  const void* state_indices = nullptr;  // [batch], which states, all different; or null: 0, 1 …
                                        // One that is of no state is padding's, whose y is 0
};

using mamba2_step_plan = plain_plan<mamba2_step_problem, mamba2_step_params>;

// ---- Calls --------------------------------------------------------------------------------------

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const mamba2_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const mamba2_backward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const mamba2_step_problem& problem);

// Whether a device's kernel makes dt' and dt' A as it goes, in place of a launch in front of it.
KITTENS_EXPORT bool makes_gates(const mamba2_problem& problem, const device& d);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT mamba2_plan plan(const mamba2_problem& problem, const device& d);
KITTENS_EXPORT mamba2_backward_plan plan(const mamba2_backward_problem& problem, const device& d);
KITTENS_EXPORT mamba2_step_plan plan(const mamba2_step_problem& problem, const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const mamba2_plan& plan, const mamba2_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const mamba2_backward_plan& plan, const mamba2_backward_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const mamba2_step_plan& plan, const mamba2_step_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
