// linear attention: a configuration of the kernel, its shared memory and tensors.
// (linear_attention_chunkwise.cuh)
#pragma once

#include <type_traits>

#include "kernels/linear_attention/linear_attention_stream.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

inline constexpr int kChunk = kLinearAttentionChunk;

// KeyWidth: K is at most this; TMA fills up with zeros. Reverse: from the last token to the first.
// Weighted: there are weights or what skips, whose registers cost others 5 % (benchmarks/
// linear_attention.md). Outputs: else the states at the ends of segments alone.
template <class T, int KeyWidth, int Consumers, bool Reverse, bool Weighted, bool Outputs>
struct linear_attention_config {
  using type = T;
  static constexpr int key_width = KeyWidth, consumers = Consumers, chunk = kChunk;
  static constexpr bool reverse = Reverse, weighted = Weighted, outputs = Outputs;
  static constexpr int threads = 128 * consumers;
  static constexpr int blocks_per_multiprocessor =
      linear_attention_blocks(key_width, consumers* kValues, outputs);
  static constexpr int stages = consumers == 2 || !outputs ? 3 : 2;  // of 16 KiB to 48 KiB

  using key_tile = st<T, kChunk, KeyWidth>;   // of q and k
  using value_tile = st<T, kChunk, kValues>;  // of v and o
  using state_tile = st<T, kValues, KeyWidth>;
};

template <class Config>
struct linear_attention_arguments : chunkwise_arguments {
  tma_sequence_map<typename Config::key_tile> q, k;
  tma_sequence_map<typename Config::value_tile> v, o, dotted;
};

// Of a chunk's tokens, what decays from each of them to the chunk's end in the recurrence, times
// its weight; and log₂ of that.
struct decays_of_columns {
  sv<float, kChunk> to_end, log_to_end;
};

// What copies write comes first, and then what threads do.
template <class Config>
struct state_shared {
  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  decays_of_columns decay[4 * Config::consumers];  // of each warp
  ring<Config::stages> chunks;
};
template <class Config>
struct output_shared {
  typename Config::key_tile k[Config::stages], q[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  typename Config::value_tile o[Config::consumers];  // what is dotted; then o, on its way out
  decays_of_columns decay[4 * Config::consumers];
  typename Config::state_tile state[Config::consumers];  // before the chunk, as a product takes it
  semaphore dotted[Config::consumers];
  ring<Config::stages> chunks;
};
template <class Config>
using linear_attention_chunkwise_shared =
    std::conditional_t<Config::outputs, output_shared<Config>, state_shared<Config>>;

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
