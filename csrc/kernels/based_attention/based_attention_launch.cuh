// based_attention: how a pass of the kernel is launched.
#pragma once

#include "kernels/based_attention/based_attention.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_pass(const based_attention_params& p, host::stream s) {
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
  const auto result = [&](void* data, int64_t width) {
    const int64_t token = p.heads * width;
    return view({data, {p.length * token, token, width}}, width);
  };
  const int64_t chunks = (p.length + kChunk - 1) / kChunk;
  const int64_t segments = (chunks + p.segment_chunks - 1) / p.segment_chunks;
  const int64_t parts = (p.values + kValues - 1) / kValues;
  based_attention_arguments<Config> t{};
  t.keys = decltype(t.keys)::of(view(p.k, p.keys));
  t.values = decltype(t.values)::of(view(p.v, p.values));
  if constexpr (Config::outputs) {
    t.row_keys = decltype(t.row_keys)::of(view(p.row_keys, p.keys));
    if constexpr (Config::differentiates) {
      t.row_values = decltype(t.row_values)::of(view(p.row_values, p.values));
    }
    t.wants_o = p.o != nullptr;
    if (t.wants_o) t.o = decltype(t.o)::of(result(p.o, p.values));
    t.wants_key_gradients = p.key_gradients != nullptr;
    if (t.wants_key_gradients) {
      t.key_gradients = decltype(t.key_gradients)::of(result(p.key_gradients, p.keys));
    }
  }
  t.initial_state = p.initial_state;
  t.initial_sums = p.initial_sums;
  t.final_state = p.final_state;
  t.final_sums = p.final_sums;
  t.segment_states = p.segment_states;
  t.segment_sums = p.segment_sums;
  t.factors = static_cast<float2*>(p.factors);
  t.batch = int(p.batch);
  t.length = int(p.length);
  t.heads = int(p.heads);
  t.key_width = int(p.keys);
  t.value_width = int(p.values);
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
template <class T, based_attention_pass Pass>
void launch_based_attention(const based_attention_params& p, host::stream s) {
  constexpr int kPass = static_cast<int>(Pass);
  if (p.segment_states != nullptr) launch_pass<based_attention_config<T, kPass, false>>(p, s);
  launch_pass<based_attention_config<T, kPass, true>>(p, s);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
