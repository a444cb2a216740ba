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
  const auto states = [&](const linear_attention_states& of) {
    const int64_t head = p.keys * p.values;
    return head_states{of.data, p.heads * head, head, of.key_stride, of.value_stride};
  };
  const int64_t chunks = (p.length + kChunk - 1) / kChunk;
  const int64_t segments = (chunks + p.segment_chunks - 1) / p.segment_chunks;
  const int64_t width = p.values * p.heads;
  linear_attention_arguments<Config> t{};
  t.q = decltype(t.q)::of(view(p.q, p.keys));
  t.k = decltype(t.k)::of(view(p.k, p.keys));
  t.v = decltype(t.v)::of(view(p.v, p.values));
  t.o = decltype(t.o)::of(view({p.o, {p.length * width, width, p.values}}, p.values));
  t.log_decay = p.log_decay;
  t.decay_strides = p.decay_strides;
  t.k_weights = p.k_weights;
  t.o_weights = p.o_weights;
  t.weight_strides = p.weight_strides;
  t.skip = p.skip;
  t.initial = states(p.initial);
  t.final = states(p.final);
  t.segment_states = states({p.segment_states, 1, p.keys});
  t.segment_stride = p.batch * p.heads * p.keys * p.values;
  t.segment_decays = p.segment_decays;
  if (p.dots != nullptr) {
    t.dotted = static_cast<const T*>(p.dotted.data);
    t.dotted_strides = p.dotted.strides;
    t.dotted_share = int(p.dotted.share);
    t.dots = p.dots;
  }
  t.own_scores = p.own_scores;
  t.batch = int(p.batch);
  t.length = int(p.length);
  t.heads = int(p.heads);
  t.keys = int(p.keys);
  t.values = int(p.values);
  t.q_share = int(p.q.share);
  t.k_share = int(p.k.share);
  t.v_share = int(p.v.share);
  t.segments = int(segments);
  t.segment_chunks = int(p.segment_chunks);
  t.scale = p.scale;
  t.initial_scale = p.initial_scale;
  t.final_scale = p.final_scale;
  host::launch(
      linear_attention_chunkwise<Config>,
      {{p.batch * p.heads * segments}, {Config::threads}, sizeof(linear_attention_shared<Config>)},
      s, t);
}

// The states of the segments, where there is more than one, and then the outputs.
template <class T, int KeyWidth, int Consumers, bool Reverse>
void launch_linear_attention(const linear_attention_params& p, host::stream s) {
  if (p.segment_states != nullptr) {
    launch_linear_attention<linear_attention_config<T, KeyWidth, Consumers, Reverse, false>>(p, s);
  }
  launch_linear_attention<linear_attention_config<T, KeyWidth, Consumers, Reverse, true>>(p, s);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
