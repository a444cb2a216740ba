// mamba2: linear attention's problem, plan and launch, behind one launch of the gates, or with
// them.
#include <algorithm>
#include <initializer_list>
#include <string>

#include "kernels/mamba2/mamba2.h"

namespace thunderkittens {
namespace {

// [batch, heads, length], contiguous: a chunk's tokens are neighbours.
linear_attention_strides strides_of_gates(const mamba2_problem& p) {
  return {p.length * p.heads, 1, p.length};
}

linear_attention_problem scan_of(const mamba2_problem& p) {
  return {
      .batch = p.batch,
      .length = p.length,
      .heads = p.heads,
      .key_heads = p.groups,
      .key_width = p.state_width,
      .value_width = p.head_width,
      .q_strides = p.c_strides,
      .k_strides = p.b_strides,
      .v_strides = p.x_strides,
      .decay_strides = strides_of_gates(p),
      .weight_strides = strides_of_gates(p),
      .scale = 1,
      .type = p.type,
      .transposed_states = true,
      .sequences = p.sequences,
      .int64_seqlens = p.int64_seqlens,
  };
}
linear_attention_backward_problem scan_of(const mamba2_backward_problem& p) {
  // Sums of the decays' gradients over all tokens are wanted, too: their errors take the shorter
  // distance of anchors.
  return {scan_of(p.forward), p.dy_strides, p.gate_gradients, /*anchor=*/128};
}

template <class Problem>
bound_kernel<mamba2_gates_params> gates_of(const Problem& p, const device& d) {
  static const kittens::host::kernel_handle gates(kMamba2Gates);
  refuse_unsupported("mamba2", p);
  return gates.on(d);
}

// Of elements of 16 bits.
mamba2_rows rows_of_half(void* data, int64_t width) { return {data, width / 2}; }

template <class Tensors>
void launch_gates(const bound_kernel<mamba2_gates_params>& gates, const mamba2_problem& p,
                  const Tensors& t, std::initializer_list<mamba2_rows> results, stream s) {
  mamba2_gates_params params{
      .dt = t.dt,
      .dt_strides = p.dt_strides,
      .dt_bias = t.dt_bias,
      .a = t.a,
      .steps = t.steps,
      .log_decay = t.log_decay,
      .batch = p.batch,
      .length = p.length,
      .heads = p.heads,
      .dt_min = static_cast<float>(p.dt_min),
      .dt_max = static_cast<float>(p.dt_max),
      .softplus = p.softplus,
      .type = p.dt_type,
      .cu_seqlens = t.cu_seqlens,
      .int64_seqlens = p.int64_seqlens,
      .sequences = p.sequences,
  };
  std::copy(results.begin(), results.end(), params.results);
  gates.launch(params, s);
}

// From what linear attention's backward has left.
void launch_gate_gradients(const mamba2_backward_plan& plan, const mamba2_backward_tensors& t,
                           stream s) {
  const mamba2_problem& p = plan.problem.forward;
  plan.gate_gradients.launch(
      {
          .d_log_decay = t.d_log_decay,
          .d_weights = t.b_dots,
          .dt = t.dt,
          .dt_strides = p.dt_strides,
          .dt_bias = t.dt_bias,
          .a = t.a,
          .steps = t.steps,
          .d_dt = t.d_dt,
          .d_a = t.d_a,
          .d_bias = t.d_dt_bias,
          .batch = p.batch,
          .length = p.length,
          .heads = p.heads,
          .parts = (p.state_width + 63) / 64,
          .dt_min = static_cast<float>(p.dt_min),
          .dt_max = static_cast<float>(p.dt_max),
          .softplus = p.softplus,
          .type = p.dt_type,
          .cu_seqlens = t.cu_seqlens,
          .int64_seqlens = p.int64_seqlens,
          .sequences = p.sequences,
      },
      s);
}

}  // namespace

std::string why_unsupported(const mamba2_problem& p) { return why_unsupported(scan_of(p)); }
std::string why_unsupported(const mamba2_backward_problem& p) {
  return why_unsupported(scan_of(p));
}

bool makes_gates(const mamba2_problem& p, const device& d) {
  return p.dt_in_words && makes_gates(scan_of(p), d);
}

mamba2_plan plan(const mamba2_problem& p, const device& d) {
  const auto gates = gates_of(p, d);
  linear_attention_problem of_scan = scan_of(p);
  of_scan.makes_gates = makes_gates(p, d);
  const auto scan = plan(of_scan, d);
  return {p, gates, scan, scan.workspace};
}
mamba2_backward_plan plan(const mamba2_backward_problem& p, const device& d) {
  static const kittens::host::kernel_handle gradients(kMamba2GateGradients);
  const auto gates = gates_of(p, d);
  const auto scan = plan(scan_of(p), d);
  return {p, gates, scan, scan.workspace, gradients.on(d)};
}

void launch(const mamba2_plan& plan, const mamba2_tensors& t, const workspace& work, stream s) {
  const mamba2_problem& p = plan.problem;
  linear_attention_tensors scan{
      .q = t.c,
      .k = t.b,
      .v = t.x,
      .o = t.y,
      .initial_state = t.initial_state,
      .final_state = t.final_state,
      .skip = t.d,
      .cu_seqlens = t.cu_seqlens,
  };
  if (plan.scan.problem.makes_gates) {
    scan.steps = {
        .dt = t.dt,
        .strides = p.dt_strides,
        .bias = t.dt_bias,
        .a = t.a,
        .least = static_cast<float>(p.dt_min),
        .most = static_cast<float>(p.dt_max),
        .softplus = p.softplus,
        .type = p.dt_type,
    };
  } else {
    launch_gates(plan.gates, p, t, {rows_of_half(t.y, p.head_width)}, s);
    scan.log_decay = t.log_decay;
    scan.weights = t.steps;
  }
  launch(plan.scan, scan, work, s);
}

void launch(const mamba2_backward_plan& plan, const mamba2_backward_tensors& t,
            const workspace& work, stream s) {
  const mamba2_problem& p = plan.problem.forward;
  const int64_t parts = (p.state_width + 63) / 64;
  launch_gates(plan.gates, p, t,
               {rows_of_half(t.dx, p.head_width),
                rows_of_half(t.db, p.state_width),
                rows_of_half(t.dc, p.state_width),
                {t.c_dots, parts},
                {t.b_dots, parts},
                {t.x_dots, 1}},
               s);
  launch(plan.scan,
         linear_attention_backward_tensors{
             .q = t.c,
             .k = t.b,
             .v = t.x,
             .d_o = t.dy,
             .log_decay = t.log_decay,
             .initial_state = t.initial_state,
             .d_final_state = t.d_final_state,
             .dq = t.dc,
             .dk = t.db,
             .dv = t.dx,
             .d_initial_state = t.d_initial_state,
             .q_dots = t.c_dots,
             .k_dots = t.b_dots,
             .weights = t.steps,
             .skip = t.d,
             .v_dots = t.x_dots,
             .cu_seqlens = t.cu_seqlens,
             .d_log_decay = t.d_log_decay,
         },
         work, s);
  if (plan.problem.gate_gradients) launch_gate_gradients(plan, t, s);
}

}  // namespace thunderkittens
