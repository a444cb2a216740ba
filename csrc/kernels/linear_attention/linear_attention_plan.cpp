// linear attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>
#include <string>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/linear_attention_decay_gradient.h"
#include "kernels/linear_attention/linear_attention_generic.h"
#include "kittens/host/ceil_div.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::ceil_div;
using kittens::host::text;

constexpr int64_t kWidest = 128;
constexpr int64_t kMost = std::numeric_limits<int>::max();
// Below, a segment's own state costs about as much as it gains.
constexpr int64_t kFewestChunks = 8;

int64_t sequences_of(const linear_attention_problem& p) {
  return p.sequences > 0 ? p.sequences : p.batch;
}

std::string why_no_kernel(const linear_attention_problem& p) {
  if (p.type == dtype::float32) return "float32 is computed by torch";
  for (const int64_t width : {p.key_width, p.value_width}) {
    if (width <= 0 || width % 8 != 0 || width > kWidest) {
      return text("head dimension ", width, " is not one of 8, 16 … ", kWidest);
    }
  }
  const int64_t chunks = p.length / kLinearAttentionChunk + 1, sequences = sequences_of(p);
  if (p.length > kMost / 2 || p.heads > kMost / std::max<int64_t>(1, sequences) ||
      chunks > kMost / std::max<int64_t>(1, sequences * p.heads)) {
    return text(sequences, " sequences of ", p.heads, " heads of ", p.length,
                " tokens are too many");
  }
  return "";
}

// Of the longest sequence: packed ones have at most all tokens.
int64_t chunks_of(const linear_attention_problem& p) {
  return ceil_div(p.length, kLinearAttentionChunk);
}

bool takes_generic(const device& d) {
  static const kittens::host::op_launchers& entry = kittens::host::launchers(kLinearAttention.name);
  return entry.find(d) == entry.find(d, kittens::host::kernel_kind::generic);
}

// Heads, or segments of them, that a device computes at one time.
int64_t streams_on(const device& d, int64_t keys, int64_t values, bool outputs) {
  if (!takes_generic(d)) {
    return d.multiprocessors * linear_attention_blocks(keys, values, outputs);
  }
  return d.multiprocessors * linear_attention_generic_blocks(keys, outputs) / ceil_div(values, 64);
}

int64_t streams_of_pairs(const device& d) {
  return d.multiprocessors * kLinearAttentionPairBlocks * 2;
}

// Where heads are too few for as many blocks as multiprocessors hold.
bool is_warp_specialized(const linear_attention_problem& p, const device& d) {
  return p.makes_gates && sequences_of(p) * p.heads < streams_of_pairs(d);
}

int64_t streams_on(const linear_attention_problem& p, const device& d, bool outputs) {
  if (is_warp_specialized(p, d)) {
    return d.multiprocessors *
           (outputs ? 2 * kLinearAttentionWarpSpecializedBlocks : kLinearAttentionPartBlocks);
  }
  if (p.makes_gates) return streams_of_pairs(d);
  return std::min(streams_on(d, p.key_width, p.value_width, outputs),
                  streams_on(d, p.value_width, p.key_width, outputs));
}

// So that every multiprocessor has as many blocks as it holds of either kernel.
linear_attention_division division_of(const linear_attention_problem& p, const device& d) {
  const auto blocks = [&](bool outputs) {
    const int64_t streams = sequences_of(p) * p.heads;
    return std::max<int64_t>(1, streams_on(p, d, outputs) / std::max<int64_t>(1, streams));
  };
  const int64_t chunks = chunks_of(p), segments = blocks(true);
  int64_t parts = std::max<int64_t>(1, blocks(false) / segments);  // of a segment
  if (is_warp_specialized(p, d)) {
    // The last segment's are not needed: more of the others, as long as that leaves them segments.
    parts = std::clamp<int64_t>(
        chunks / (segments * kFewestChunks), 1,
        std::max<int64_t>(1, blocks(false) / std::max<int64_t>(1, segments - 1)));
  }
  const int64_t part =
      std::max(ceil_div(chunks, segments * parts), std::min(chunks, kFewestChunks));
  return {.segment = part * parts, .part = part};
}

bool has_parts(const linear_attention_problem& p, const linear_attention_division& division) {
  return chunks_of(p) > division.segment;
}

int64_t parts_of(const linear_attention_problem& p, const linear_attention_division& division) {
  return ceil_div(chunks_of(p), division.part);
}

int64_t padded(int64_t width) { return width <= 64 ? 64 : 128; }

// Of the states of all parts, which are whole tiles.
int64_t part_state_elements(const linear_attention_problem& p,
                            const linear_attention_division& division) {
  return parts_of(p, division) * sequences_of(p) * p.heads * padded(p.key_width) *
         padded(p.value_width);
}

// Those states, and a decay of each.
int64_t workspace_bytes(const linear_attention_problem& p,
                        const linear_attention_division& division) {
  if (!has_parts(p, division)) return 0;
  return (part_state_elements(p, division) + parts_of(p, division) * sequences_of(p) * p.heads) *
         int64_t{sizeof(float)};
}

// Behind those, what the decays' gradient needs of its anchors: states, and then their products.
struct anchor_memory {
  static constexpr int64_t kAlignment = 16;
  int64_t states, products, end;  // bytes from the workspace's start

  static anchor_memory of(const linear_attention_backward_problem& problem,
                          const linear_attention_division& division) {
    const linear_attention_problem& p = problem.forward;
    const int64_t slots = p.heads * linear_attention_anchor_slots(p.length, sequences_of(p),
                                                                  p.sequences > 0, problem.anchor);
    anchor_memory m;
    m.states = ceil_div(workspace_bytes(p, division), kAlignment) * kAlignment;
    m.products =
        m.states + slots * padded(p.key_width) * padded(p.value_width) * int64_t{sizeof(uint16_t)};
    m.end = m.products + slots * ceil_div(p.key_width, 64) * 4 * int64_t{sizeof(float)};
    return m;
  }
};

template <class Problem>
bound_kernel<linear_attention_params> kernel_of(const Problem& p,
                                                const linear_attention_problem& forward,
                                                const device& d) {
  static const kittens::host::kernel_handle kernel(kLinearAttention);
  refuse_unsupported(kernel.name(), p);
  if (forward.length < 1) throw error(text("linear_attention: length must be at least 1, got 0"));
  return kernel.on(d);
}

// What the launches of a call have in common.
template <class Tensors>
linear_attention_params params_of(const linear_attention_problem& p,
                                  const linear_attention_division& division, const Tensors& t,
                                  const workspace& work) {
  auto* const memory = has_parts(p, division) ? static_cast<float*>(work.memory) : nullptr;
  return {
      .log_decay = t.log_decay,
      .decay_strides = p.decay_strides,
      .weight_strides = p.weight_strides,
      .part_states = {memory, padded(p.value_width), 1},
      .part_decays = memory == nullptr ? nullptr : memory + part_state_elements(p, division),
      .finds_parts = memory != nullptr,
      .cu_seqlens = t.cu_seqlens,
      .int64_seqlens = p.int64_seqlens,
      .sequences = p.sequences,
      .batch = p.batch,
      .length = p.length,
      .heads = p.heads,
      .division = division,
      .scale = static_cast<float>(p.scale),
      .initial_scale = 1,
      .final_scale = 1,
      .type = p.type,
  };
}

// Where keys and values lie in a state.
linear_attention_states states_of(const linear_attention_problem& p, const float* data) {
  auto* const states = const_cast<float*>(data);
  if (p.transposed_states) return {states, 1, p.key_width};
  return {states, p.value_width, 1};
}
// One token's stride may be anything, which TMA takes for the rows of packed sequences.
linear_attention_operand operand_of(const linear_attention_problem& p, const void* data,
                                    linear_attention_strides strides, int64_t share = 1) {
  if (p.length == 1) strides.token = kWidest;
  return {data, strides, share};
}

// The decays' gradient, from the dots and products that the others have left.
void launch_decay_gradient(const linear_attention_backward_plan& plan,
                           const linear_attention_backward_tensors& t, const float* products,
                           stream s) {
  const linear_attention_problem& p = plan.problem.forward;
  plan.decay_gradient.launch(
      {
          .q_dots = t.q_dots,
          .k_dots = t.k_dots,
          .weights = t.weights,
          .weight_strides = p.weight_strides,
          .products = products,
          .initial_state = t.initial_state != nullptr,
          .d_final_state = t.d_final_state != nullptr,
          .d_log_decay = t.d_log_decay,
          .cu_seqlens = t.cu_seqlens,
          .int64_seqlens = p.int64_seqlens,
          .sequences = sequences_of(p),
          .batch = p.batch,
          .length = p.length,
          .heads = p.heads,
          .dots = ceil_div(p.key_width, 64),
          .anchor = plan.problem.anchor,
      },
      s);
}

// Of a call whose k has the role of v.
linear_attention_states transposed(const linear_attention_states& s) {
  return {s.data, s.value_stride, s.key_stride};
}

}  // namespace

std::string why_unsupported(const linear_attention_problem& p) { return why_no_kernel(p); }
std::string why_unsupported(const linear_attention_backward_problem& p) {
  if (p.forward.scale == 0) return "the gradients of a scale of 0 are computed by torch";
  if (p.decay_gradient && p.anchor != 128 && p.anchor != 256) {
    return text("anchor must be 128 or 256, got ", p.anchor);
  }
  return why_no_kernel(p.forward);
}

bool makes_gates(const linear_attention_problem& p, const device& d) {
  return !takes_generic(d) && p.type == dtype::bfloat16 && p.sequences == 0 &&
         std::max(p.key_width, p.value_width) <= 64 && p.heads / p.key_heads % 2 == 0;
}

linear_attention_plan plan(const linear_attention_problem& p, const device& d) {
  const linear_attention_division division = division_of(p, d);
  return {
      {p, kernel_of(p, p, d), {workspace_bytes(p, division)}}, division, is_warp_specialized(p, d)};
}
linear_attention_backward_plan plan(const linear_attention_backward_problem& p, const device& d) {
  static const kittens::host::kernel_handle decays(kLinearAttentionDecayGradient);
  const auto kernel = kernel_of(p, p.forward, d);
  const linear_attention_division division = division_of(p.forward, d);
  const int64_t bytes =
      p.decay_gradient ? anchor_memory::of(p, division).end : workspace_bytes(p.forward, division);
  return {{p, kernel, {bytes}}, division, decays.on(d)};
}

void launch(const linear_attention_plan& plan, const linear_attention_tensors& t,
            const workspace& work, stream s) {
  const linear_attention_problem& p = plan.problem;
  const int64_t share = p.heads / p.key_heads;
  linear_attention_params all = params_of(p, plan.division, t, work);
  all.q = operand_of(p, t.q, p.q_strides, share);
  all.k = operand_of(p, t.k, p.k_strides, share);
  all.v = operand_of(p, t.v, p.v_strides);
  all.o = t.o;
  all.k_weights = t.weights;
  all.steps = t.steps;
  all.warp_specialized = plan.warp_specialized;
  all.skip = t.skip;
  all.initial = states_of(p, t.initial_state);
  all.final = states_of(p, t.final_state);
  all.keys = p.key_width;
  all.values = p.value_width;
  plan.kernel.launch(all, s);
}

void launch(const linear_attention_backward_plan& plan, const linear_attention_backward_tensors& t,
            const workspace& work, stream s) {
  const linear_attention_problem& p = plan.problem.forward;
  const int64_t share = p.heads / p.key_heads, K = p.key_width, V = p.value_width;
  const linear_attention_operand q = operand_of(p, t.q, p.q_strides, share),
                                 k = operand_of(p, t.k, p.k_strides, share),
                                 v = operand_of(p, t.v, p.v_strides),
                                 d_o = operand_of(p, t.d_o, plan.problem.do_strides);
  const linear_attention_params all = params_of(p, plan.division, t, work);
  char* const memory = static_cast<char*>(work.memory);
  const anchor_memory anchors = anchor_memory::of(plan.problem, plan.division);
  auto* const products = reinterpret_cast<float*>(memory + anchors.products);
  const auto pass_anchors = [&](linear_attention_params& params) {
    if (!plan.problem.decay_gradient) return;
    params.anchor_states = memory + anchors.states;
    params.anchor_products = products;
    params.anchor = plan.problem.anchor;
    params.anchors_first = t.initial_state != nullptr;
  };
  // The state's keys are the columns of what plays k, its values those of what plays v.
  const auto run = [&](linear_attention_params params, const linear_attention_operand& as_q,
                       const linear_attention_operand& as_k, const linear_attention_operand& as_v,
                       void* as_o, int64_t keys, int64_t values) {
    params.q = as_q;
    params.k = as_k;
    params.v = as_v;
    params.o = as_o;
    params.keys = keys;
    params.values = values;
    plan.kernel.launch(params, s);
  };
  if (t.dq != nullptr) {
    linear_attention_params params = all;
    params.k_weights = t.weights;
    params.initial = transposed(states_of(p, t.initial_state));
    params.part_states = transposed(params.part_states);
    params.dotted = q;
    params.dots = t.q_dots;
    params.own_scores = t.v_dots;
    pass_anchors(params);
    run(params, d_o, v, k, t.dq, V, K);
  }
  // In reverse, the state is dS / scale.
  linear_attention_params in_reverse = all;
  in_reverse.reverse = true;
  in_reverse.initial_scale = static_cast<float>(1 / p.scale);
  in_reverse.final_scale = static_cast<float>(p.scale);
  in_reverse.o_weights = t.weights;
  const linear_attention_states d_final = states_of(p, t.d_final_state),
                                d_initial = states_of(p, t.d_initial_state);
  if (t.dk != nullptr) {
    linear_attention_params params = in_reverse;
    params.initial = transposed(d_final);
    params.final = transposed(d_initial);
    params.part_states = transposed(params.part_states);
    params.dotted = k;
    params.dots = t.k_dots;
    pass_anchors(params);
    run(params, v, d_o, q, t.dk, V, K);
  }
  if (t.dv != nullptr) {
    linear_attention_params params = in_reverse;
    params.skip = t.skip;
    params.initial = d_final;
    if (t.dk == nullptr) params.final = d_initial;
    params.finds_parts = params.finds_parts && t.dk == nullptr;  // dk's are the same
    run(params, k, q, d_o, t.dv, K, V);
  }
  if (plan.problem.decay_gradient) launch_decay_gradient(plan, t, products, s);
}

}  // namespace thunderkittens
