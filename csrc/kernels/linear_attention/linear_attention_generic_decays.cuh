// linear attention: the decays within a chunk of the generic kernel, by one warp for all of them.
// (linear_attention_generic.cuh; what they are: linear_attention_decays.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_generic_tile.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// Has those of the chunk of a step brought, where there are any: by a warp, of which each lane has
// a token. A token that does not exist has zeros.
template <class Config>
KITTENS_DEVICE void request_gates_of(gates_of_tokens<Config::chunk>& to,
                                     const places_of_stream<typename Config::type>& from,
                                     const chunkwise_arguments& p, const chunk_stream& s,
                                     int step) {
  static_assert(Config::chunk == kWarp);
  const int lane = arch::lane_id(), token = s.template token<Config>(step) + lane;
  const bool there = step < s.count && token < s.length;
  const auto copy = [&](auto& to, const float* from, int64_t stride) {
    if (from != nullptr) arch::cp_async<4>(&to.data[lane], from + token * stride, there);
  };
  copy(to.log_decay, from.log_decay, p.decay_strides.token);
  if constexpr (!Config::reverse) copy(to.k_weights, from.k_weights, p.weight_strides.token);
  if constexpr (Config::outputs) copy(to.o_weights, from.o_weights, p.weight_strides.token);
}

// What all warps need of a chunk's gates: by the warp that had them brought, once they are there.
template <class Config>
KITTENS_DEVICE void leave_decays(decays_of_tokens<Config::chunk>& to,
                                 const gates_of_tokens<Config::chunk>& gates,
                                 const chunkwise_arguments& p) {
  const int lane = arch::lane_id();
  // Of this lane's token and those before, log₂.
  float sum = p.log_decay == nullptr ? 0 : arch::load_shared(&gates.log_decay.data[lane]) * kLog2e;
#pragma unroll
  for (int delta = 1; delta < kWarp; delta *= 2) {
    const float before = arch::shuffle_up(sum, delta);
    if (lane >= delta) sum += before;
  }
  const float total = arch::shuffle(sum, kWarp - 1);
  const float to_end = Config::reverse ? sum : total - sum;
  const bool weighs = !Config::reverse && p.k_weights != nullptr;
  const float k_weight = weighs ? arch::load_shared(&gates.k_weights.data[lane]) : 1;
  to.to_end.data[lane] = arch::exp2_approx(to_end) * k_weight;
  if (lane == 0) to.total = total;
  if constexpr (Config::outputs) {
    const bool by_factors = takes_factors<typename Config::type>(total);
    const float since_state = Config::reverse ? total - sum : sum;
    const float from_end = since_state - total;
    to.log_to_end.data[lane] = to_end + arch::log2_approx(k_weight);
    to.log_from_end.data[lane] = from_end;
    to.before.data[lane] = arch::exp2_approx(by_factors ? total : since_state);
    to.after.data[lane] = by_factors ? arch::exp2_approx(from_end) * p.scale : p.scale;
    to.weights.data[lane] =
        p.o_weights == nullptr ? 1 : arch::load_shared(&gates.o_weights.data[lane]);
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
