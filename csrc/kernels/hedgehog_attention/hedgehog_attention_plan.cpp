// hedgehog attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>
#include <string>

#include "kernels/hedgehog_attention/hedgehog_attention.h"
#include "kittens/host/ceil_div.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::ceil_div;
using kittens::host::text;

constexpr int64_t kMost = std::numeric_limits<int>::max();
// Below, a segment's own state costs about as much as it gains.
constexpr int64_t kFewestBlocks = 8;
constexpr int64_t kFewestBlocksOfPart = 4;
constexpr int64_t kMostBlocksOfHead = 65;  // of threads, of a sum: hedgehog_attention_sums.cuh
constexpr int64_t kMostRuns = 8;           // of a sequence, where its heads alone occupy the device
constexpr int64_t kFeatures = 2 * kHedgehogMapColumns;
constexpr int64_t kStateBytes = kFeatures * (kHedgehogHeadDim + 1) * int64_t{sizeof(float)};

int64_t blocks_of(const hedgehog_attention_problem& p) {
  return ceil_div(p.length, kHedgehogBlock);
}

// How a call's sequences are cut: so that each multiprocessor has a block of threads. A kernel's
// step is two blocks of tokens, and so a segment is an even number.
int64_t blocks_of_segment(const hedgehog_attention_problem& p, const device& d) {
  const int64_t blocks = blocks_of(p), streams = std::max<int64_t>(1, p.batch * p.heads);
  const int64_t segments = std::max<int64_t>(1, d.multiprocessors / streams);
  return 2 * ceil_div(std::max(ceil_div(blocks, segments), std::min(blocks, kFewestBlocks)), 2);
}

// The parts of `cut` segments, of which each has so many blocks, whose states are found first: as
// many as there is room for at a time. Of an even number of blocks where a step is two.
int64_t blocks_of_part(int64_t segment_blocks, int64_t cut, int64_t room, int64_t step) {
  const int64_t parts = std::max<int64_t>(1, room / std::max<int64_t>(1, cut));
  const int64_t blocks = std::max(ceil_div(segment_blocks, parts), kFewestBlocksOfPart);
  return step * ceil_div(std::min(segment_blocks, blocks), step);
}

bool takes_generic_backward(const device& d) {
  static const kittens::host::op_launchers& entry =
      kittens::host::launchers(kHedgehogAttentionBackward.name);
  return entry.find(d) == entry.find(d, kittens::host::kernel_kind::generic);
}

// The same of the backward: so that the multiprocessors, each of which has one block of threads at
// a time, have the least to do. Of several such cuts the longest runs. Hopper's kernel first finds
// the states between runs, which is a fifth of what a block of tokens takes else.
int64_t blocks_of_run(const hedgehog_attention_problem& p, const device& d, bool generic) {
  const int64_t blocks = blocks_of(p), streams = std::max<int64_t>(1, p.batch * p.heads);
  const int64_t most = std::min(blocks, std::max<int64_t>(kMostRuns, d.multiprocessors / streams));
  int64_t best = blocks, least = std::numeric_limits<int64_t>::max();
  for (int64_t runs = 1; runs <= most; ++runs) {
    const int64_t length = ceil_div(blocks, runs);
    const int64_t steps = length * ceil_div(streams * ceil_div(blocks, length), d.multiprocessors);
    const int64_t fifths = steps * (generic || runs == 1 ? 5 : 6);
    if (fifths >= least) continue;
    least = fifths;
    best = length;
  }
  return best;
}

// Where in the backward's workspace, in bytes, what the launches leave each other lies.
struct workspace_places {
  int64_t states, state_sums, factors, q_map_parts, k_map_parts, weight_parts, size = 0;

  explicit workspace_places(const hedgehog_attention_backward_plan& plan) {
    const hedgehog_attention_problem& p = plan.problem.forward;
    const int64_t streams = p.batch * p.heads, blocks = streams * blocks_of(p);
    const int64_t runs = ceil_div(blocks_of(p), plan.run_blocks), parts = streams * runs;
    const bool generic = plan.has_block_states;
    constexpr int64_t kFloat = sizeof(float), kType = 2;
    // The generic kernel has a state for each block, and Hopper's one for each part of a run.
    const int64_t states_of =
        generic ? blocks : streams * (runs - 1) * ceil_div(plan.run_blocks, plan.part_blocks);
    const auto take = [&](int64_t bytes) {
      const int64_t place = size;
      size += ceil_div(bytes, 256) * 256;
      return place;
    };
    states = take(states_of * kFeatures * kHedgehogHeadDim * (generic ? kType : kFloat));
    state_sums = take(states_of * kFeatures * kFloat);
    factors = take(blocks * kHedgehogBlock * 4 * kFloat);
    q_map_parts = take(parts * kHedgehogHeadDim * kHedgehogMapColumns * kFloat);
    k_map_parts = take(parts * kHedgehogHeadDim * kHedgehogMapColumns * kFloat);
    weight_parts = take(parts * kFloat);
  }
};

}  // namespace

std::string why_unsupported(const hedgehog_attention_problem& p) {
  if (p.type == dtype::float32) return "float32 is computed by torch";
  for (const int64_t width : {p.head_dim, p.value_dim}) {
    if (width < 1 || width > kHedgehogHeadDim || width % kHedgehogColumnStep != 0) {
      return text("head dimension ", width, " is not one of ", kHedgehogColumnStep, ", ",
                  2 * kHedgehogColumnStep, " … ", kHedgehogHeadDim);
    }
  }
  if (p.features != kHedgehogMapColumns) {
    return text("maps to ", p.features, " columns are not to ", kHedgehogMapColumns);
  }
  if (p.length > kMost / 2 || p.heads > kMost / std::max<int64_t>(1, p.batch) ||
      blocks_of(p) + 1 > kMost / std::max<int64_t>(1, p.batch * p.heads)) {
    return text(p.batch, " batches of ", p.heads, " heads of ", p.length, " tokens are too many");
  }
  return "";
}

std::string why_unsupported(const hedgehog_attention_backward_problem& problem) {
  const hedgehog_attention_problem& p = problem.forward;
  const std::string reason = why_unsupported(p);
  if (!reason.empty()) return reason;
  if (p.has_window) return "gradients of a sequence with a window before it are computed by torch";
  if (p.heads * kMostBlocksOfHead > kMost / std::max<int64_t>(1, p.batch)) {
    return text(p.batch, " batches of ", p.heads, " heads are too many");
  }
  return "";
}

std::string why_unsupported(const hedgehog_attention_step_problem& p) {
  for (const int64_t width : {p.head_dim, p.value_dim, 2 * p.features}) {
    if (width < 1 || width > kHedgehogStepWidth) {
      return text("width ", width, " is not one of 1, 2 … ", kHedgehogStepWidth);
    }
  }
  if (p.heads > kMost / std::max<int64_t>(1, p.batch)) {
    return text(p.batch, " batches of ", p.heads, " heads are too many");
  }
  return "";
}

hedgehog_attention_plan plan(const hedgehog_attention_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kHedgehogAttention);
  refuse_unsupported(kernel.name(), p);
  if (p.length < 1) throw error("hedgehog_attention: length must be at least 1, got 0");
  hedgehog_attention_plan plan{{p, kernel.on(d)}, blocks_of_segment(p, d)};
  const int64_t cut = p.batch * p.heads * (ceil_div(blocks_of(p), plan.segment_blocks) - 1);
  plan.part_blocks = blocks_of_part(plan.segment_blocks, cut, d.multiprocessors, 2);
  plan.workspace.bytes = cut * ceil_div(plan.segment_blocks, plan.part_blocks) * kStateBytes;
  return plan;
}

hedgehog_attention_backward_plan plan(const hedgehog_attention_backward_problem& p,
                                      const device& d) {
  static const kittens::host::kernel_handle kernel(kHedgehogAttentionBackward);
  refuse_unsupported(kernel.name(), p);
  if (p.forward.length < 1 || p.forward.batch < 1 || p.forward.heads < 1) {
    throw error(
        text("hedgehog_attention_backward: batch, length and heads must be at least 1, got ",
             p.forward.batch, ", ", p.forward.length, " and ", p.forward.heads));
  }
  const bool generic = takes_generic_backward(d);
  hedgehog_attention_backward_plan plan{
      {p, kernel.on(d)}, blocks_of_run(p.forward, d, generic), 0, generic};
  const int64_t cut =
      p.forward.batch * p.forward.heads * (ceil_div(blocks_of(p.forward), plan.run_blocks) - 1);
  // Two blocks of threads a multiprocessor.
  plan.part_blocks = blocks_of_part(plan.run_blocks, cut, 2 * d.multiprocessors, 1);
  plan.workspace.bytes = workspace_places(plan).size;
  return plan;
}

hedgehog_attention_step_plan plan(const hedgehog_attention_step_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kHedgehogAttentionStep);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

void launch(const hedgehog_attention_plan& plan, const hedgehog_attention_tensors& t,
            const workspace& work, stream s) {
  const hedgehog_attention_problem& p = plan.problem;
  const int64_t states = plan.workspace.bytes / kStateBytes;
  auto* const memory = states == 0 ? nullptr : static_cast<float*>(work.memory);
  const int64_t kv_elements = states * kFeatures * kHedgehogHeadDim;
  plan.kernel.launch({.problem = p,
                      .tensors = t,
                      .part_kv = memory,
                      .part_sum = memory == nullptr ? nullptr : memory + kv_elements,
                      .segment_blocks = plan.segment_blocks,
                      .part_blocks = plan.part_blocks},
                     s);
}

void launch(const hedgehog_attention_backward_plan& plan,
            const hedgehog_attention_backward_tensors& t, const workspace& work, stream s) {
  const workspace_places places(plan);
  auto* const memory = static_cast<char*>(work.memory);
  const auto floats = [&](int64_t place) { return reinterpret_cast<float*>(memory + place); };
  plan.kernel.launch({.problem = plan.problem,
                      .tensors = t,
                      .states = memory + places.states,
                      .state_sums = floats(places.state_sums),
                      .factors = memory + places.factors,
                      .q_map_parts = floats(places.q_map_parts),
                      .k_map_parts = floats(places.k_map_parts),
                      .weight_parts = floats(places.weight_parts),
                      .run_blocks = plan.run_blocks,
                      .part_blocks = plan.part_blocks},
                     s);
}

void launch(const hedgehog_attention_step_plan& plan, const hedgehog_attention_step_tensors& t,
            const workspace&, stream s) {
  plan.kernel.launch({plan.problem, t}, s);
}

}  // namespace thunderkittens
