// based_attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>
#include <string>

#include "kernels/based_attention/based_attention.h"
#include "kittens/host/ceil_div.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::ceil_div;
using kittens::host::text;

constexpr int64_t kMost = std::numeric_limits<int>::max();
constexpr int64_t kBlocksPerMultiprocessor = 2;
// Below, a segment's own state costs about as much as it gains.
constexpr int64_t kFewestChunks = 8;

int64_t chunks_of(const based_attention_problem& p) { return ceil_div(p.length, kBasedChunk); }
// Blocks that work on a sequence side by side: each head's, and each 64 columns of its values.
int64_t streams_of(const based_attention_problem& p) {
  return p.batch * p.heads * ceil_div(p.value_width, kBasedBlockValues);
}

// How a call's sequences are cut: so that all blocks that fit are there.
int64_t chunks_of_segment(const based_attention_problem& p, const device& d) {
  const int64_t chunks = chunks_of(p), streams = std::max<int64_t>(1, streams_of(p));
  const int64_t segments =
      std::max<int64_t>(1, d.multiprocessors * kBlocksPerMultiprocessor / streams);
  return std::max(ceil_div(chunks, segments), std::min(chunks, kFewestChunks));
}

// Where in the workspace, in floats, what the launches leave each other lies.
struct workspace_places {
  int64_t states = 0, sums = 0, factors = 0;  // of segments, of segments, of tokens
  bool has_segments;
  int64_t size = 0;

  workspace_places(const based_attention_problem& p, int64_t segment_chunks, bool differentiates) {
    const int64_t heads = p.batch * p.heads;
    const int64_t segments = ceil_div(chunks_of(p), segment_chunks);
    const int64_t sums_of = segments * heads * based_attention_features(p.key_width);
    has_segments = segments > 1;
    const auto take = [&](int64_t floats) {
      const int64_t place = size;
      size += (floats + 3) / 4 * 4;
      return place;
    };
    if (has_segments) {
      states = take(sums_of * p.value_width);
      sums = take(sums_of);
    }
    if (differentiates && p.normalize) factors = take(2 * heads * chunks_of(p) * kBasedChunk);
  }
};

template <class Plan, class Problem>
Plan plan_of(const Problem& problem, const based_attention_problem& p, const device& d,
             bool differentiates) {
  static const kittens::host::kernel_handle kernel(kBasedAttention);
  refuse_unsupported(kernel.name(), problem);
  if (p.length < 1) throw error("based_attention: length must be at least 1, got 0");
  if (!(p.scale > 0)) throw error(text("based_attention: scale must be above 0, got ", p.scale));
  Plan plan{{problem, kernel.on(d)}, chunks_of_segment(p, d)};
  plan.workspace.bytes =
      workspace_places(p, plan.segment_chunks, differentiates).size * int64_t{sizeof(float)};
  return plan;
}

// What the passes of a call have in common.
based_attention_params params_of(const based_attention_problem& p, int64_t segment_chunks,
                                 const workspace& work, bool differentiates) {
  const workspace_places places(p, segment_chunks, differentiates);
  auto* const memory = static_cast<float*>(work.memory);
  return {
      .segment_states = places.has_segments ? memory + places.states : nullptr,
      .segment_sums = places.has_segments ? memory + places.sums : nullptr,
      .factors = differentiates && p.normalize ? memory + places.factors : nullptr,
      .batch = p.batch,
      .length = p.length,
      .heads = p.heads,
      .keys = p.key_width,
      .values = p.value_width,
      .segment_chunks = segment_chunks,
      .scale = static_cast<float>(p.scale),
      .eps = static_cast<float>(p.eps),
      .normalize = p.normalize,
      .type = p.type,
  };
}

}  // namespace

std::string why_unsupported(const based_attention_problem& p) {
  if (p.type == dtype::float32) return "float32 is computed by torch";
  if (p.key_width != 8 && p.key_width != kBasedWidestKey) {
    return text("feature dimension ", p.key_width, " is not 8 or ", kBasedWidestKey);
  }
  if (p.value_width <= 0 || p.value_width % 8 != 0) {
    return text("head dimension ", p.value_width, " of v is not a multiple of 8");
  }
  const int64_t streams = std::max<int64_t>(1, streams_of(p));
  if (p.length > kMost / 2 || p.value_width > kMost / 2 || p.heads > kMost / 2 ||
      p.batch > kMost / 2 || chunks_of(p) + 1 > kMost / streams) {
    return text(p.batch, " batches of ", p.heads, " heads of ", p.length, " tokens are too many");
  }
  return "";
}
std::string why_unsupported(const based_attention_backward_problem& p) {
  const std::string reason = why_unsupported(p.forward);
  if (reason.empty() && p.forward.value_width > kBasedBlockValues) {
    return text("the gradients of head dimension ", p.forward.value_width, " of v, above ",
                kBasedBlockValues, ", are computed by torch");
  }
  return reason;
}

based_attention_plan plan(const based_attention_problem& p, const device& d) {
  return plan_of<based_attention_plan>(p, p, d, false);
}
based_attention_backward_plan plan(const based_attention_backward_problem& p, const device& d) {
  return plan_of<based_attention_backward_plan>(p, p.forward, d, true);
}

void launch(const based_attention_plan& plan, const based_attention_tensors& t,
            const workspace& work, stream s) {
  const based_attention_problem& p = plan.problem;
  based_attention_params params = params_of(p, plan.segment_chunks, work, false);
  params.pass = based_attention_pass::forward;
  params.k = {t.k, p.k_strides};
  params.v = {t.v, p.v_strides};
  params.row_keys = {t.q, p.q_strides};
  params.o = t.o;
  params.initial_state = t.initial_state;
  params.initial_sums = t.initial_sums;
  params.final_state = t.final_state;
  params.final_sums = t.final_sums;
  plan.kernel.launch(params, s);
}

void launch(const based_attention_backward_plan& plan, const based_attention_backward_tensors& t,
            const workspace& work, stream s) {
  const based_attention_problem& p = plan.problem.forward;
  const based_attention_operand q{t.q, p.q_strides}, k{t.k, p.k_strides}, v{t.v, p.v_strides},
      d_o{t.d_o, plan.problem.do_strides};
  const based_attention_params all = params_of(p, plan.segment_chunks, work, true);
  const bool keys = t.dk != nullptr || t.dv != nullptr || t.d_initial_state != nullptr ||
                    t.d_initial_sums != nullptr;
  if (t.dq != nullptr || (keys && p.normalize)) {  // which leaves the factors
    based_attention_params params = all;
    params.pass = based_attention_pass::dq;
    params.k = k;
    params.v = v;
    params.row_keys = q;
    params.row_values = d_o;
    params.key_gradients = t.dq;
    params.initial_state = t.initial_state;
    params.initial_sums = t.initial_sums;
    plan.kernel.launch(params, s);
  }
  if (!keys) return;
  based_attention_params params = all;
  params.pass = based_attention_pass::dk_dv;
  params.k = q;
  params.v = d_o;
  params.row_keys = k;
  params.row_values = v;
  params.o = t.dv;
  params.key_gradients = t.dk;
  params.initial_state = t.d_final_state;
  params.initial_sums = t.d_final_sums;
  params.final_state = t.d_initial_state;
  params.final_sums = t.d_initial_sums;
  plan.kernel.launch(params, s);
}

}  // namespace thunderkittens
