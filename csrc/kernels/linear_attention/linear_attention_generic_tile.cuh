// linear attention: a configuration of the generic kernel, its shared memory and tensors.
// (linear_attention_generic.cuh)
#pragma once

#include <type_traits>

#include "kernels/linear_attention/linear_attention_anchors.cuh"
#include "kernels/linear_attention/linear_attention_decays.cuh"
#include "kernels/linear_attention/linear_attention_generic.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// KeyWidth: K is at most this; copies fill up with zeros. Reverse: from the last token to the
// first. Outputs: else the states of parts alone.
template <class T, int KeyWidth, bool Reverse, bool Outputs>
struct linear_attention_generic_config {
  using type = T;
  static constexpr int warps = 4;  // each has 16 columns of v and o
  static constexpr int key_width = KeyWidth, heads = 1;
  static constexpr bool makes_gates = false, gradients = true;
  static constexpr bool reverse = Reverse, outputs = Outputs;
  static constexpr int chunk = 32;  // tokens
  static constexpr int stages = 2;
  static constexpr int threads = warps * kWarp;
  static constexpr int blocks_per_multiprocessor =
      linear_attention_generic_blocks(key_width, outputs);

  using key_tile = st<T, chunk, key_width>;  // of q and k
  using value_tile = st<T, chunk, kValues>;  // of v; what is dotted; and o, on its way out
  using weight_tile = st<T, chunk, 16>;      // of 16 columns of the scores
};

// A tensor [batch, length, heads, width] that is read.
template <class T>
struct generic_operand {
  const T* data;
  linear_attention_strides strides;
  int share;  // heads that read one of the tensor's

  // The first token of the stream's sequence.
  KITTENS_DEVICE const T* of(const chunk_stream& s) const {
    return data + s.batch * strides.batch + s.start * strides.token + s.head / share * strides.head;
  }
};

template <class T>
struct linear_attention_generic_arguments : chunkwise_arguments {
  generic_operand<T> q, k, v, dotted;
  T* o;             // [B, S, H, V]
  int value_parts;  // of 64 columns of v and o each, a block's
};

// Where the numbers of the stream's first token are, and the next ones so far apart; null is not
// wanted. In shared memory, for in registers they are more than there is room for.
template <class T>
struct places_of_stream {
  places_of_gates gates;
  const float* skip;
  const T* dotted;
  float *dots, *own_scores;
  T* o;
  places_of_anchors anchors;

  template <class Config>
  KITTENS_DEVICE void set(const linear_attention_generic_arguments<T>& p, const chunk_stream& s) {
    gates = places_of_gates::of<Config>(p, s);
    anchors = places_of_anchors::of<Config>(p, s);
    dotted = p.dots == nullptr ? nullptr : p.dotted.of(s);
    dots = p.dots == nullptr ? nullptr : p.dots + s.place(p, 0) * p.value_parts;
    own_scores = p.own_scores == nullptr ? nullptr : p.own_scores + s.place(p, 0);
    o = p.o + s.place(p, 0) * p.values;
    skip = p.skip == nullptr ? nullptr : p.skip + s.head;
  }
};

template <class Config>
struct generic_state_shared {
  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages];
  gates_of_tokens<Config::chunk> gates[Config::stages];
  decays_of_tokens<Config::chunk> decays[Config::stages];
  places_of_stream<typename Config::type> places;
};
template <class Config>
struct generic_output_shared {
  typename Config::key_tile k[Config::stages], q[Config::stages];
  typename Config::value_tile v[Config::stages];
  typename Config::weight_tile weights[Config::chunk / 16];
  gates_of_tokens<Config::chunk> gates[Config::stages];
  decays_of_tokens<Config::chunk> decays[Config::stages];
  places_of_stream<typename Config::type> places;
  sv<float, Config::chunk> dots[Config::warps];  // Σ o ∘ dotted over a warp's columns
};
template <class Config>
using linear_attention_generic_shared =
    std::conditional_t<Config::outputs, generic_output_shared<Config>,
                       generic_state_shared<Config>>;

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
