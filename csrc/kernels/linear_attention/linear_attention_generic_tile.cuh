// linear attention: a configuration of the generic kernel, its shared memory and tensors.
// (linear_attention_generic.cuh)
#pragma once

#include <type_traits>

#include "kernels/linear_attention/linear_attention_generic.h"
#include "kernels/linear_attention/linear_attention_stream.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// KeyWidth: K is at most this; copies fill up with zeros. Reverse: from the last token to the
// first. Outputs: else the states of parts alone.
template <class T, int KeyWidth, bool Reverse, bool Outputs>
struct linear_attention_generic_config {
  using type = T;
  static constexpr int warps = 4;  // each has 16 columns of v and o
  static constexpr int key_width = KeyWidth;
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

// A number of each of a chunk's tokens, as they are given. What is null is not there.
template <int Tokens>
struct gates_of_tokens {
  sv<float, Tokens> log_decay, k_weights, o_weights;
};

// Of a chunk's tokens, by what is multiplied; once for all warps, a chunk ahead.
template <int Tokens>
struct decays_of_tokens {
  using of_tokens = sv<float, Tokens>;
  of_tokens to_end, log_to_end;  // of columns of the scores, as decays_of_columns
  of_tokens log_from_end;        // of rows: log₂ of what brings them back from the chunk's end
  of_tokens before, after;       // of rows of o: before the scores' part is added, and at last
  of_tokens weights;             // of rows of o, or 1
  float total;                   // log₂ of the chunk's decay

  // Of the scores' columns or rows 16 · half and on.
  KITTENS_DEVICE static const sv<float, 16>& half_of(const of_tokens& all, int half) {
    return *reinterpret_cast<const sv<float, 16>*>(all.data + 16 * half);
  }
};

// Where the numbers of the stream's first token are, and the next ones so far apart; null is not
// wanted. In shared memory, for in registers they are more than there is room for.
template <class T>
struct places_of_stream {
  const float *log_decay, *k_weights, *o_weights, *skip;
  const T* dotted;
  float *dots, *own_scores;
  T* o;

  KITTENS_DEVICE void set(const linear_attention_generic_arguments<T>& p, const chunk_stream& s) {
    const auto of = [&](const float* from, const linear_attention_strides& strides) {
      return from == nullptr ? nullptr : s.of_token(from, strides, 0);
    };
    log_decay = of(p.log_decay, p.decay_strides);
    k_weights = of(p.k_weights, p.weight_strides);
    o_weights = of(p.o_weights, p.weight_strides);
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
