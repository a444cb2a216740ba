// based_attention: how a configuration of the kernel is launched.
#pragma once

#include "kernels/based_attention/based_attention.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_based_attention(const based_attention_params& p, host::stream s) {
  using T = typename Config::type;
  const auto view = [&](const based_attention_operand& of, int64_t width) {
    const auto& [batch, token, head] = of.strides;
    return gl<T>{static_cast<T*>(const_cast<void*>(of.data)),
                 p.batch,
                 p.heads,
                 p.length,
                 width,
                 batch,
                 head,
                 token};
  };
  const int64_t chunks = (p.length + kChunk - 1) / kChunk;
  const int64_t segments = (chunks + p.segment_chunks - 1) / p.segment_chunks;
  const int64_t parts = (p.values + kValues - 1) / kValues;
  const int64_t width = p.values * p.heads;
  based_attention_arguments<Config> t{};
  t.q = decltype(t.q)::of(view(p.q, p.keys));
  t.k = decltype(t.k)::of(view(p.k, p.keys));
  t.v = decltype(t.v)::of(view(p.v, p.values));
  t.o = decltype(t.o)::of(view({p.o, {p.length * width, width, p.values}}, p.values));
  t.initial_state = p.initial_state;
  t.initial_sums = p.initial_sums;
  t.final_state = p.final_state;
  t.final_sums = p.final_sums;
  t.segment_states = p.segment_states;
  t.segment_sums = p.segment_sums;
  t.batch = int(p.batch);
  t.length = int(p.length);
  t.heads = int(p.heads);
  t.keys = int(p.keys);
  t.values = int(p.values);
  t.features = int(based_attention_features(p.keys));
  t.segments = int(segments);
  t.segment_chunks = int(p.segment_chunks);
  t.scale = p.scale;
  t.eps = p.eps;
  t.normalize = p.normalize;
  host::launch(based_attention<Config>,
               {{p.batch * p.heads * parts * segments},
                {Config::threads},
                sizeof(based_attention_shared<Config>)},
               s, t);
}

// The states of the segments, where there is more than one, and then the outputs.
template <class T>
void launch_all(const based_attention_params& p, host::stream s) {
  if (p.segment_states != nullptr) {
    launch_based_attention<based_attention_config<T, false>>(p, s);
  }
  launch_based_attention<based_attention_config<T, true>>(p, s);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
