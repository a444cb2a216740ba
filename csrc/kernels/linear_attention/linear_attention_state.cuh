// linear attention: the state of four warps, a consumer, at the ends of its segment.
// (linear_attention_chunkwise.cuh, linear_attention_generic.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_stream.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// [values, keys], this warp's 16 values of the consumer's 64.
template <class Config>
using consumer_state = rt_fl<16, Config::key_width>;

// f(element, its value, its key) for those of this lane. No branch: loads are under way together.
template <class Config, class F>
KITTENS_DEVICE void for_each_element(consumer_state<Config>& state, int w, F f) {
  using tile = consumer_state<Config>;
  const int lane = arch::lane_id();
#pragma unroll
  for (int i = 0; i < Config::key_width / 4; ++i) {
    const int value = w * kValues + arch::warp_id() % 4 * 16 + tile::across(0, i % 4, lane);
    const int key = tile::along(i / 4, i % 4, lane);
    f(state.data[0][2 * i], value, key);
    f(state.data[0][2 * i + 1], value, key + 1);
  }
}

// f(four elements, their place) for those of this lane: a state as lanes have it, of which a warp
// moves whole lines. What makes gates leaves and reads its parts so.
template <class Config, class F>
KITTENS_DEVICE void for_each_vector(consumer_state<Config>& state, F f) {
#pragma unroll
  for (int i = 0; i < Config::key_width / 8; ++i) {
    f(&state.data[0][4 * i], (i * 128 + arch::thread_id() % 128) * 4);
  }
}

KITTENS_DEVICE float* of_stream(const head_states& states, const chunk_stream& s) {
  return states.data + s.sequence * states.sequence_stride + s.head * states.head_stride;
}

KITTENS_DEVICE float* part_decay(const chunkwise_arguments& p, const chunk_stream& s, int part) {
  return p.part_decays + (int64_t{part} * p.sequences + s.sequence) * p.heads + s.head;
}

// Before the segment: of the initial one and of those parts that come before it. Before a part: 0.
template <class Config>
KITTENS_DEVICE void load_state(const chunkwise_arguments& p, const chunk_stream& s, int w,
                               consumer_state<Config>& state) {
  zero(state);
  if constexpr (Config::outputs) {
    if (p.initial.data != nullptr) {
      const float* const from = of_stream(p.initial, s);
      for_each_element<Config>(state, w, [&](float& x, int value, int key) {
        const bool exists = value < p.values && key < p.keys;
        const int64_t place =
            exists ? value * p.initial.value_stride + key * p.initial.key_stride : 0;
        const float loaded = arch::load_global(from + place);
        x = exists ? loaded * p.initial_scale : 0;
      });
    }
    if (p.part_states.data == nullptr) return;
    const int before = s.template parts_before<Config>(p.part_chunks);
#pragma unroll 1
    for (int i = 0; i < before; ++i) {
      const int part = s.template part<Config>(i, p.part_chunks);
      const float decay = arch::exp2_approx(arch::load_global(part_decay(p, s, part)));
      const float* const from = of_stream(p.part_states, s) + part * p.part_stride;
      if constexpr (Config::makes_gates) {
        for_each_vector<Config>(state, [&](float* x, int place) {
          const float4 y = arch::load_global(reinterpret_cast<const float4*>(from + place));
          x[0] = x[0] * decay + y.x;
          x[1] = x[1] * decay + y.y;
          x[2] = x[2] * decay + y.z;
          x[3] = x[3] * decay + y.w;
        });
        continue;
      }
      for_each_element<Config>(state, w, [&](float& x, int value, int key) {
        const int64_t place = value * p.part_states.value_stride + key * p.part_states.key_stride;
        x = x * decay + arch::load_global(from + place);
      });
    }
  }
}

// Of a part.
template <class Config>
KITTENS_DEVICE void store_part_state(const chunkwise_arguments& p, const chunk_stream& s, int w,
                                     consumer_state<Config>& state) {
  float* const to = of_stream(p.part_states, s) + s.index * p.part_stride;
  if constexpr (Config::makes_gates) {
    for_each_vector<Config>(state, [&](const float* x, int place) {
      arch::store_global(reinterpret_cast<float4*>(to + place), {x[0], x[1], x[2], x[3]});
    });
    return;
  }
  for_each_element<Config>(state, w, [&](float x, int value, int key) {
    arch::store_global(to + value * p.part_states.value_stride + key * p.part_states.key_stride, x);
  });
}

// Behind the sequence; or behind a part, with its decay, log₂.
template <class Config>
KITTENS_DEVICE void store_state(const chunkwise_arguments& p, const chunk_stream& s, int w,
                                consumer_state<Config>& state, float decay) {
  if constexpr (Config::outputs) {
    if (p.final.data == nullptr || !s.template is_last<Config>()) return;
    float* const to = of_stream(p.final, s);
    for_each_element<Config>(state, w, [&](float x, int value, int key) {
      if (value >= p.values || key >= p.keys) return;
      arch::store_global(to + value * p.final.value_stride + key * p.final.key_stride,
                         x * p.final_scale);
    });
  } else {
    store_part_state<Config>(p, s, w, state);
    // (Blocks, and consumers, of other columns leave the same.)
    if (arch::thread_id() % 128 == 0) arch::store_global(part_decay(p, s, s.index), decay);
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
