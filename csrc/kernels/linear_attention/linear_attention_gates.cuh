// linear attention: the gates of a chunk's tokens, as they are brought: decays and weights, or
// what both are made of. (linear_attention_decays.cuh)
#pragma once

#include <bit>
#include <type_traits>

#include "kernels/linear_attention/linear_attention_steps.cuh"
#include "kernels/linear_attention/linear_attention_stream.cuh"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// A number of each of a chunk's tokens, as they are given. What is null is not there.
template <int Tokens>
struct gates_of_tokens {
  sv<float, Tokens> log_decay, k_weights, o_weights;
};
// Where the kernel makes gates: the word that each token's dt is in.
template <int Tokens>
struct words_of_tokens {
  sv<float, Tokens> dt;
};
template <class Config>
using gates_of_chunk = std::conditional_t<Config::makes_gates, words_of_tokens<Config::chunk>,
                                          gates_of_tokens<Config::chunk>>;

// Where those of the stream's first token are; null is not wanted. In shared memory, for there are
// no registers to spare.
struct places_of_gates {
  const float *log_decay, *k_weights, *o_weights;
  const char* dt;
  float bias, a;  // of dt, and of the decay

  template <class Config>
  KITTENS_DEVICE static places_of_gates of(const chunkwise_arguments& p, const chunk_stream& s) {
    places_of_gates places{};
    if constexpr (Config::makes_gates) {
      const linear_attention_steps& from = p.steps;
      const int64_t first =
          s.batch * from.strides.batch + s.start * from.strides.token + s.head * from.strides.head;
      places.dt = static_cast<const char*>(from.dt) + first * from.element_bytes();
      places.bias = from.bias == nullptr ? 0 : arch::load_global(from.bias + s.head);
      places.a = arch::load_global(from.a + s.head);
    } else {
      const auto place = [&](const float* from, const linear_attention_strides& strides) {
        return from == nullptr ? nullptr : s.of_token(from, strides, 0);
      };
      places.log_decay = place(p.log_decay, p.decay_strides);
      places.k_weights = place(p.k_weights, p.weight_strides);
      places.o_weights = place(p.o_weights, p.weight_strides);
    }
    return places;
  }
  // Of a token from the stream's first.
  KITTENS_DEVICE uintptr_t of_dt(const linear_attention_steps& from, int token) const {
    return reinterpret_cast<uintptr_t>(dt) + token * from.strides.token * from.element_bytes();
  }
};

// Tokens of a sequence whose gates a warp works on, from `first` on: those from `begin` to `end`
// exist.
struct gate_tokens {
  int first, begin, end;

  KITTENS_DEVICE bool has(int token) const { return token >= begin && token < end; }

  // Of the chunk of a step; or, behind the last one, none.
  template <class Config>
  KITTENS_DEVICE static gate_tokens of_step(const chunk_stream& s, int step) {
    return {s.template token<Config>(step), 0, step < s.count ? s.length : 0};
  }
};

// Has the gates of a chunk's tokens brought, where there are any: by a warp. One that does not
// exist has zeros.
template <class Config>
KITTENS_DEVICE void request_gates_of(gates_of_chunk<Config>& to, const places_of_gates& from,
                                     const chunkwise_arguments& p, const gate_tokens& tokens) {
  const auto for_each_token = [&](auto f) {
#pragma unroll
    for (int first = 0; first < Config::chunk; first += kWarp) {
      const int i = first + arch::lane_id(), token = tokens.first + i;
      f(i, token, tokens.has(token));
    }
  };
  if constexpr (Config::makes_gates) {
    for_each_token([&](int i, int token, bool there) {
      const uintptr_t word = from.of_dt(p.steps, token) & ~uintptr_t{3};
      arch::cp_async<4>(&to.dt.data[i], reinterpret_cast<const void*>(word), there);
    });
  } else {
    const auto copy = [&](auto& to, const float* from, int64_t stride) {
      if (from == nullptr) return;
      for_each_token([&](int i, int token, bool there) {
        arch::cp_async<4>(&to.data[i], from + token * stride, there);
      });
    };
    copy(to.log_decay, from.log_decay, p.decay_strides.token);
    if constexpr (!Config::reverse) copy(to.k_weights, from.k_weights, p.weight_strides.token);
    if constexpr (Config::outputs && Config::gradients)
      copy(to.o_weights, from.o_weights, p.weight_strides.token);
  }
}

// In place of the words that the dt of tokens `first` and on are in, dt'; of one that does not
// exist 0.
template <int N>
KITTENS_DEVICE void steps_of_words(float (&words)[N], const places_of_gates& from,
                                   const linear_attention_steps& steps, const gate_tokens& tokens,
                                   int first) {
  const auto unpack_halves = [&]<class T>(T) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float low, high;
      unpack<T>(low, high, std::bit_cast<uint32_t>(words[i]));
      words[i] = from.of_dt(steps, first + i) % 4 == 0 ? low : high;
    }
  };
  if (steps.type == dtype::bfloat16) unpack_halves(bf16{});
  if (steps.type == dtype::float16) unpack_halves(half{});
#pragma unroll
  for (float& x : words) x += from.bias;
  steps_of(words, steps.softplus, steps.least, steps.most);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (!tokens.has(first + i)) words[i] = 0;
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
