// linear attention: a configuration of the kernel, its shared memory and tensors.
// (linear_attention_chunkwise.cuh)
#pragma once

#include <type_traits>

#include "kernels/linear_attention/linear_attention_anchors.cuh"
#include "kernels/linear_attention/linear_attention_decays.cuh"

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
  // Scores are computed a chunk before they are used: 2 to 4 % where blocks wait for memory alone.
  // Where they do not, that asks for a chunk too soon: 4 to 6 % slower (benchmarks/
  // linear_attention.md). With fp16 there are no registers for it.
  static constexpr bool scores_ahead =
      std::is_same_v<T, bf16> && key_width == 64 && consumers == 1 && !weighted;

  using key_tile = st<T, kChunk, KeyWidth>;   // of q and k
  using value_tile = st<T, kChunk, kValues>;  // of v and o
  using state_tile = st<T, kValues, KeyWidth>;
};

template <class Config>
struct linear_attention_arguments : chunkwise_arguments {
  tma_sequence_map<typename Config::key_tile> q, k;
  tma_sequence_map<typename Config::value_tile> v, o, dotted;
};

// Which of each tensor's heads a block reads, found once: a division is some 40 instructions, of
// the thread that the others wait for.
struct heads_read {
  int q, k, v, dotted;

  KITTENS_DEVICE static heads_read of(const chunkwise_arguments& p, int head) {
    return {head / p.q_share, head / p.k_share, head / p.v_share, head / p.dotted_share};
  }
};

// What a consumer has of a chunk's gates and of the next one's.
struct consumer_decays {
  gates_of_tokens<kChunk> gates[2];
  decays_of_tokens<kChunk> of_chunk[2];
};

// What copies write comes first, and then what threads do.
template <class Config>
struct state_shared {
  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  consumer_decays decays[Config::consumers];
  ring<Config::stages> chunks;
  chunk_stream stream;  // here and not in registers, of which there are none to spare
  heads_read heads;
  places_of_gates places;
};
template <class Config>
struct output_shared {
  typename Config::key_tile k[Config::stages], q[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  typename Config::value_tile o[Config::consumers];  // what is dotted; then o, on its way out
  consumer_decays decays[Config::consumers];
  typename Config::state_tile state[Config::consumers];  // before the chunk, as a product takes it
  semaphore dotted[Config::consumers];
  ring<Config::stages> chunks;
  chunk_stream stream;
  float skip;  // of the head
  heads_read heads;
  places_of_gates places;
  places_of_anchors anchors;
};
template <class Config>
using linear_attention_chunkwise_shared =
    std::conditional_t<Config::outputs, output_shared<Config>, state_shared<Config>>;

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
