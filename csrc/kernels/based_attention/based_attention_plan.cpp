// based_attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>
#include <string>

#include "kernels/based_attention/based_attention.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::text;

constexpr int64_t kMost = std::numeric_limits<int>::max();
constexpr int64_t kBlocksPerMultiprocessor = 2;
// Below, a segment's own state costs about as much as it gains.
constexpr int64_t kFewestChunks = 8;

int64_t chunks_of(const based_attention_problem& p) {
  return (p.length + kBasedChunk - 1) / kBasedChunk;
}
// Blocks that work on a sequence side by side: each head's, and each 64 columns of its values.
int64_t streams_of(const based_attention_problem& p) {
  return p.batch * p.heads * ((p.value_width + kBasedBlockValues - 1) / kBasedBlockValues);
}

// How a call's sequences are cut: so that all blocks that fit are there.
int64_t chunks_of_segment(const based_attention_problem& p, const device& d) {
  const int64_t chunks = chunks_of(p), streams = std::max<int64_t>(1, streams_of(p));
  const int64_t segments =
      std::max<int64_t>(1, d.multiprocessors * kBlocksPerMultiprocessor / streams);
  return std::max((chunks + segments - 1) / segments, std::min(chunks, kFewestChunks));
}

int64_t segments_of(const based_attention_problem& p, int64_t segment_chunks) {
  return (chunks_of(p) + segment_chunks - 1) / segment_chunks;
}

// Floats of the states of all segments.
int64_t state_floats(const based_attention_problem& p, int64_t segment_chunks) {
  return segments_of(p, segment_chunks) * p.batch * p.heads *
         based_attention_features(p.key_width) * p.value_width;
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

based_attention_plan plan(const based_attention_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kBasedAttention);
  refuse_unsupported(kernel.name(), p);
  if (p.length < 1) throw error("based_attention: length must be at least 1, got 0");
  if (!(p.scale > 0)) {
    throw error(text("based_attention: scale must be above 0, got ", p.scale));
  }
  based_attention_plan plan{{p, kernel.on(d)}, chunks_of_segment(p, d)};
  if (segments_of(p, plan.segment_chunks) > 1) {
    const int64_t states = state_floats(p, plan.segment_chunks);
    plan.workspace.bytes = (states + states / p.value_width) * int64_t{sizeof(float)};
  }
  return plan;
}

void launch(const based_attention_plan& plan, const based_attention_tensors& t,
            const workspace& work, stream s) {
  const based_attention_problem& p = plan.problem;
  auto* const memory = plan.workspace.bytes == 0 ? nullptr : static_cast<float*>(work.memory);
  plan.kernel.launch(
      {
          .q = {t.q, p.q_strides},
          .k = {t.k, p.k_strides},
          .v = {t.v, p.v_strides},
          .o = t.o,
          .initial_state = t.initial_state,
          .initial_sums = t.initial_sums,
          .final_state = t.final_state,
          .final_sums = t.final_sums,
          .segment_states = memory,
          .segment_sums =
              memory == nullptr ? nullptr : memory + state_floats(p, plan.segment_chunks),
          .batch = p.batch,
          .length = p.length,
          .heads = p.heads,
          .keys = p.key_width,
          .values = p.value_width,
          .segment_chunks = plan.segment_chunks,
          .scale = static_cast<float>(p.scale),
          .eps = static_cast<float>(p.eps),
          .normalize = p.normalize,
          .type = p.type,
      },
      s);
}

}  // namespace thunderkittens
