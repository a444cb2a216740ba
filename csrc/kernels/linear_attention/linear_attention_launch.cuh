// linear attention: how a configuration of the kernel is launched.
#pragma once

#include <string>

#include "kernels/linear_attention/linear_attention_chunkwise.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_linear_attention(const linear_attention_params& p, host::stream s) {
  using T = typename Config::type;
  const auto view = [&](const linear_attention_operand& of, int64_t width) {
    const auto& [batch, token, head] = of.strides;
    return gl<T>{static_cast<T*>(const_cast<void*>(of.data)),
                 p.batch,
                 p.heads / of.share,
                 p.length,
                 width,
                 batch,
                 head,
                 token};
  };
  const auto states = [&](const linear_attention_states& of, int64_t head) {
    return head_states{of.data, p.heads * head, head, of.key_stride, of.value_stride};
  };
  const bool packed = p.cu_seqlens != nullptr;
  const auto map = [&]<class Tile>(tma_sequence_map<Tile>& map, const gl<T>& view) {
    map = packed ? tma_sequence_map<Tile>::of_packed(view) : tma_sequence_map<Tile>::of(view);
  };
  const int64_t sequences = packed ? p.sequences : p.batch;
  const int64_t chunks = (p.length + kChunk - 1) / kChunk;
  const auto& [segment, part] = p.division;
  const int64_t segments = (chunks + segment - 1) / segment, parts = (chunks + part - 1) / part;
  const int64_t width = p.values * p.heads;
  linear_attention_arguments<Config> t{};
  map(t.q, view(p.q, p.keys));
  map(t.k, view(p.k, p.keys));
  map(t.v, view(p.v, p.values));
  map(t.o, view({p.o, {p.length * width, width, p.values}}, p.values));
  t.log_decay = p.log_decay;
  t.decay_strides = p.decay_strides;
  t.k_weights = p.k_weights;
  t.o_weights = p.o_weights;
  t.weight_strides = p.weight_strides;
  t.skip = p.skip;
  t.initial = states(p.initial, p.keys * p.values);
  t.final = states(p.final, p.keys * p.values);
  t.part_states = states(p.part_states, Config::state_tile::num_elements * Config::consumers);
  t.part_stride = sequences * p.heads * Config::state_tile::num_elements * Config::consumers;
  t.part_decays = p.part_decays;
  if (p.dots != nullptr) {
    map(t.dotted, view(p.dotted, p.values));
    t.dotted_share = int(p.dotted.share);
    t.dots = p.dots;
  }
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
  t.segments = int(segments);
  t.segment_chunks = int(segment);
  t.parts = int(p.part_states.data == nullptr ? 0 : parts);
  t.part_chunks = int(part);
  t.scale = p.scale;
  t.initial_scale = p.initial_scale;
  t.final_scale = p.final_scale;
  host::launch(linear_attention_chunkwise<Config>,
               {{sequences * p.heads * (Config::outputs ? segments : parts)},
                {Config::threads},
                sizeof(linear_attention_chunkwise_shared<Config>)},
               s, t);
}

// The states of the parts, where they are asked for, and then the outputs.
template <class T, int KeyWidth, int Consumers, bool Reverse, bool Weighted>
void launch_linear_attention(const linear_attention_params& p, host::stream s) {
  if (p.finds_parts) {
    launch_linear_attention<
        linear_attention_config<T, KeyWidth, Consumers, Reverse, Weighted, false>>(p, s);
  }
  launch_linear_attention<linear_attention_config<T, KeyWidth, Consumers, Reverse, Weighted, true>>(
      p, s);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
