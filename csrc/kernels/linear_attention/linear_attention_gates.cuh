// linear attention: the gates of a chunk's tokens, as they are brought: decays and weights, or
// what both are made of. (linear_attention_decays.cuh)
#pragma once

#include <bit>

#include "kernels/linear_attention/linear_attention_steps.cuh"
#include "kernels/linear_attention/linear_attention_stream.cuh"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// A number of each of a chunk's tokens, as they are given. What is null is not there. Where the
// kernel makes gates, `log_decay` holds the word that dt is in.
template <int Tokens>
struct gates_of_tokens {
  sv<float, Tokens> log_decay, k_weights, o_weights;
};

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

// Has the gates of the chunk of a step brought, where there are any: by a warp. A token that does
// not exist has zeros.
template <class Config>
KITTENS_DEVICE void request_gates_of(gates_of_tokens<Config::chunk>& to,
                                     const places_of_gates& from, const chunkwise_arguments& p,
                                     const chunk_stream& s, int step) {
  const auto for_each_token = [&](auto f) {
#pragma unroll
    for (int first = 0; first < Config::chunk; first += kWarp) {
      const int i = first + arch::lane_id(), token = s.template token<Config>(step) + i;
      f(i, token, step < s.count && token < s.length);
    }
  };
  if constexpr (Config::makes_gates) {
    for_each_token([&](int i, int token, bool there) {
      const uintptr_t word = from.of_dt(p.steps, token) & ~uintptr_t{3};
      arch::cp_async<4>(&to.log_decay.data[i], reinterpret_cast<const void*>(word), there);
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

// dt' of a token, from the word that its dt is in; of one that does not exist 0.
KITTENS_DEVICE float step_of_word(const places_of_gates& from, const linear_attention_steps& steps,
                                  const chunk_stream& s, int token, float word) {
  if (token >= s.length) return 0;
  float dt = word;
  if (steps.type != dtype::float32) {
    const uint32_t both = std::bit_cast<uint32_t>(word);
    float first, second;
    if (steps.type == dtype::bfloat16) {
      unpack<bf16>(first, second, both);
    } else {
      unpack<half>(first, second, both);
    }
    dt = from.of_dt(steps, token) % 4 == 0 ? first : second;
  }
  return step_of(dt + from.bias, steps.softplus, steps.least, steps.most);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
