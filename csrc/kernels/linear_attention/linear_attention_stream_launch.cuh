// linear attention: what every kernel is given of a call, beside its tiles.
#pragma once

#include "kernels/linear_attention/linear_attention_stream.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// How many blocks there are: for each head of a sequence its segments, or its parts.
template <class Config>
int64_t set_arguments(chunkwise_arguments& t, const linear_attention_params& p) {
  const int64_t state = Config::key_width * (p.values <= kValues ? kValues : 2 * kValues);
  const auto states = [&](const linear_attention_states& of, int64_t head) {
    return head_states{of.data, p.heads * head, head, of.key_stride, of.value_stride};
  };
  const bool packed = p.cu_seqlens != nullptr;
  const int64_t sequences = packed ? p.sequences : p.batch;
  // The division is in chunks of kLinearAttentionChunk tokens, of which the kernel makes some.
  constexpr int64_t kChunks = kLinearAttentionChunk / Config::chunk;
  const int64_t chunks = (p.length + Config::chunk - 1) / Config::chunk;
  const int64_t segment = p.division.segment * kChunks, part = p.division.part * kChunks;
  const int64_t segments = (chunks + segment - 1) / segment;
  const int64_t parts = (segments - 1) * (segment / part);  // in front of the last segment
  t.log_decay = p.log_decay;
  t.decay_strides = p.decay_strides;
  t.k_weights = p.k_weights;
  t.o_weights = p.o_weights;
  t.weight_strides = p.weight_strides;
  t.steps = p.steps;
  t.skip = p.skip;
  t.initial = states(p.initial, p.keys * p.values);
  t.final = states(p.final, p.keys * p.values);
  t.part_states = states(p.part_states, state);
  t.part_stride = sequences * p.heads * state;
  t.part_decays = p.part_decays;
  t.anchor_states = static_cast<uint4*>(p.anchor_states);
  t.anchor_products = p.anchor_products;
  t.anchor_warps = int((p.values + kValues - 1) / kValues * 4);
  t.anchors_first = p.anchors_first;
  t.anchor = int(p.anchor);
  t.dots = p.dots;
  t.own_scores = p.own_scores;
  t.batch = int(p.batch);
  t.ends = {p.cu_seqlens, p.int64_seqlens};
  t.sequences = int(sequences);
  t.length = int(p.length);
  t.heads = int(p.heads);
  t.keys = int(p.keys);
  t.values = int(p.values);
  t.q_share = int(p.q.share);
  t.k_share = int(p.k.share);
  t.v_share = int(p.v.share);
  t.dotted_share = int(p.dotted.share);
  t.segments = int(segments);
  t.segment_chunks = int(segment);
  t.parts = int(parts);
  t.part_chunks = int(part);
  t.scale = p.scale;
  t.initial_scale = p.initial_scale;
  t.final_scale = p.final_scale;
  return sequences * (p.heads / Config::heads) * (Config::outputs ? segments : parts);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
