// based_attention: what a pass of either kernel is given, beside its tiles; and which of the passes
// is launched.
#pragma once

#include "kernels/based_attention/based_attention_tile.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

// How many blocks there are: for each head its segments, and parts of its values.
inline int64_t set_arguments(pass_arguments& t, const based_attention_params& p) {
  const int64_t chunks = (p.length + kChunk - 1) / kChunk;
  const int64_t segments = (chunks + p.segment_chunks - 1) / p.segment_chunks;
  t.wants_o = p.o != nullptr;
  t.wants_key_gradients = p.key_gradients != nullptr;
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
  return p.batch * p.heads * ((p.values + kValues - 1) / kValues) * segments;
}

// A result is contiguous.
inline based_attention_operand result_of(const based_attention_params& p, void* data,
                                         int64_t width) {
  const int64_t token = p.heads * width;
  return {data, {p.length * token, token, width}};
}

// f(an element of the type, the pass)
template <class F>
void with_type_and_pass(const based_attention_params& p, F f) {
  using enum based_attention_pass;
  const auto with_pass = [&](auto element) {
    switch (p.pass) {
      case forward: return f.template operator()<decltype(element), forward>();
      case dq: return f.template operator()<decltype(element), dq>();
      case dk_dv: return f.template operator()<decltype(element), dk_dv>();
    }
  };
  switch (p.type) {
    case dtype::float16: return with_pass(half{});
    case dtype::bfloat16: return with_pass(bf16{});
    case dtype::float32: break;
  }
  throw kittens::host::error("based_attention: type must be float16 or bfloat16, got float32");
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
