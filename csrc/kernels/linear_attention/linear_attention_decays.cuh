// linear attention: the decays within a chunk, left by one warp for all that compute it.
// (linear_attention_chunkwise.cuh, linear_attention_generic.cuh)
#pragma once

#include <bit>

#include "kernels/linear_attention/linear_attention_gates.cuh"
#include "kittens/arch/pair_math.cuh"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// Factors of two tokens next to each other, not below 0: of each a bf16, in a half of a word, and
// another of what that has left of it. A product with both is off by 2⁻¹⁴ of itself, before it is
// rounded to bf16, whose half unit is 2⁻⁸. `high` is rounded down and `low` above 0, so that an
// infinity times both is the sum of two alike.
struct alignas(2 * sizeof(uint32_t)) factors_of_pair {
  uint32_t high, low;

  KITTENS_DEVICE static factors_of_pair of(float first, float second) {
    factors_of_pair f;
    f.high = std::bit_cast<uint32_t>(first) >> 16 | (std::bit_cast<uint32_t>(second) & 0xffff0000u);
    float x, y;
    unpack<bf16>(x, y, f.high);
    f.low = pack<bf16>(what_is_left(first, x), what_is_left(second, y));
    return f;
  }
  // Times both bf16 of a word.
  KITTENS_DEVICE uint32_t times(uint32_t word) const {
    return arch::fma_bf16_pairs(word, high, multiply_pairs<bf16>(word, low));
  }

 private:
  // Of an infinite factor, too, from which nothing can be subtracted.
  KITTENS_DEVICE static float what_is_left(float factor, float high) {
    constexpr float kLeast = 0x1p-133f;  // of bf16
    const float left = factor - high;
    return left > kLeast || !(factor > 0) ? left : kLeast;
  }
};

// The decays within a chunk. At token i of the chunk, L(i) is log₂ of their product up to i; a
// token past the sequence's end does not decay. Two ways lead from the score of row i and column j
// to its weight, with E the chunk's end in the order of the recurrence and its decay, e:
//
//   by factors   2^(L(E) − L(j)) of column j, and at last 2^(L(i) − L(E)) of row i
//   or exactly   2^(L(i) − L(j)) of each pair
//
// The first takes an exponential a token in place of one a pair, and is as exact where both factors
// are far from the ends of T's range: e at least 2^−32, and T as wide as float. (takes_factors)
template <int Tokens>
struct decays_of_tokens {
  using of_tokens = sv<float, Tokens>;
  of_tokens to_end;        // from each token to the chunk's end in the recurrence, times its weight
  of_tokens log_to_end;    // of columns of the scores: log₂ of that
  of_tokens log_from_end;  // of rows: log₂ of what brings them back from the chunk's end
  of_tokens before, after;  // of rows of o: before the scores' part is added, and at last
  of_tokens weights;        // of rows of o, or 1
  factors_of_pair to_end_of_pairs[Tokens / 2];  // what bf16 values take; of chunks of 64
  float total;                                  // log₂ of the chunk's decay

  // Of tokens 16 · i and on.
  KITTENS_DEVICE static const sv<float, 16>& sixteen(const of_tokens& all, int i) {
    return *reinterpret_cast<const sv<float, 16>*>(all.data + 16 * i);
  }
};

// A lane's tokens' numbers, which lie next to each other.
template <int N>
struct alignas(N * sizeof(float)) numbers_of_lane {
  float data[N];
};
template <int N, int Tokens>
KITTENS_DEVICE numbers_of_lane<N> load_numbers(const sv<float, Tokens>& of_tokens) {
  return arch::load_shared(reinterpret_cast<const numbers_of_lane<N>*>(of_tokens.data) +
                           arch::lane_id());
}
template <int N, int Tokens>
KITTENS_DEVICE void store_numbers(sv<float, Tokens>& of_tokens, const numbers_of_lane<N>& x) {
  arch::store_shared(reinterpret_cast<numbers_of_lane<N>*>(of_tokens.data) + arch::lane_id(), x);
}

// A lane's tokens' decays, log₂, and weights of k.
template <int N>
struct gates_of_lane {
  numbers_of_lane<N> decay{}, k_weight;

  // Of a chunk, once each lane's copies are there.
  template <class Config>
  KITTENS_DEVICE static gates_of_lane of(const gates_of_chunk<Config>& gates,
                                         const places_of_gates& from, const chunkwise_arguments& p,
                                         const gate_tokens& tokens) {
    gates_of_lane own;
    arch::sync_warp();  // other lanes' copies are there
#pragma unroll
    for (int i = 0; i < N; ++i) own.k_weight.data[i] = 1;
    if constexpr (Config::makes_gates) {
      own.k_weight = load_numbers<N>(gates.dt);
      steps_of_words(own.k_weight.data, from, p.steps, tokens, tokens.first + arch::lane_id() * N);
#pragma unroll
      for (int i = 0; i < N; ++i) own.decay.data[i] = own.k_weight.data[i] * from.a;
    } else {
      if (p.log_decay != nullptr) own.decay = load_numbers<N>(gates.log_decay);
      if (!Config::reverse && p.k_weights != nullptr) {
        own.k_weight = load_numbers<N>(gates.k_weights);
      }
    }
#pragma unroll
    for (float& x : own.decay.data) x *= kLog2e;
    return own;
  }
  // log₂ of the decay of this lane's tokens and those before.
  KITTENS_DEVICE float sum() const {
    float sum = 0;
#pragma unroll
    for (const float x : decay.data) sum += x;
#pragma unroll
    for (int delta = 1; delta < kWarp; delta *= 2) {
      const float before = arch::shuffle_up(sum, delta);
      if (arch::lane_id() >= delta) sum += before;
    }
    return sum;
  }
};

// What all warps need of a chunk's gates: by the warp that had them brought, once each lane's
// copies are there.
template <class Config>
KITTENS_DEVICE void leave_decays(decays_of_tokens<Config::chunk>& to,
                                 const gates_of_chunk<Config>& gates, const places_of_gates& from,
                                 const chunkwise_arguments& p, const gate_tokens& tokens) {
  constexpr int kTokens = Config::chunk / kWarp;  // of a lane
  using numbers = numbers_of_lane<kTokens>;
  const int lane = arch::lane_id();
  const auto own = gates_of_lane<kTokens>::template of<Config>(gates, from, p, tokens);
  numbers o_weight;
#pragma unroll
  for (float& x : o_weight.data) x = 1;
  float sum = own.sum();
  const float total = arch::shuffle(sum, kWarp - 1);
  if (lane == 0) to.total = total;
  numbers to_end, log_to_end, log_from_end, before, after;
#pragma unroll
  for (int i = kTokens - 1; i >= 0; --i) {
    const bool by_factors = takes_factors<typename Config::type>(total);
    const float since_state = Config::reverse ? total - sum : sum;
    const float from_end = since_state - total;
    log_to_end.data[i] = Config::reverse ? sum : total - sum;
    to_end.data[i] = arch::exp2_approx(log_to_end.data[i]) * own.k_weight.data[i];
    if constexpr (Config::outputs) {
      log_to_end.data[i] += arch::log2_approx(own.k_weight.data[i]);
      log_from_end.data[i] = from_end;
      before.data[i] = arch::exp2_approx(by_factors ? total : since_state);
      after.data[i] = by_factors ? arch::exp2_approx(from_end) * p.scale : p.scale;
    }
    sum -= own.decay.data[i];
  }
  store_numbers(to.to_end, to_end);
  if constexpr (kTokens == 2 && std::is_same_v<typename Config::type, bf16>) {
    arch::store_shared(&to.to_end_of_pairs[lane],
                       factors_of_pair::of(to_end.data[0], to_end.data[1]));
  }
  if constexpr (Config::outputs) {
    store_numbers(to.log_to_end, log_to_end);
    store_numbers(to.log_from_end, log_from_end);
    store_numbers(to.before, before);
    store_numbers(to.after, after);
    if constexpr (Config::gradients) {
      if (p.o_weights != nullptr) o_weight = load_numbers<kTokens>(gates.o_weights);
      store_numbers(to.weights, o_weight);
    }
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
