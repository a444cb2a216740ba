// linear attention: a configuration of the kernel, its shared memory and tensors.
// (linear_attention_chunkwise.cuh)
#pragma once

#include <type_traits>

#include "kernels/linear_attention/linear_attention_anchors.cuh"
#include "kernels/linear_attention/linear_attention_decays.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

inline constexpr int kChunk = kLinearAttentionChunk;

// KeyWidth: K is at most this; TMA fills up with zeros. Reverse: from the last token to the first.
// Columns: of v and o, by 64. Weighted: there are weights or what skips, whose registers cost
// others 5 % (benchmarks/linear_attention.md). Outputs: else the states at the ends of segments
// alone.
template <class T, int KeyWidth, int Columns, bool Reverse, bool Weighted, bool Outputs>
struct linear_attention_config {
  using type = T;
  static constexpr int key_width = KeyWidth, columns = Columns, chunk = kChunk;
  static constexpr int heads = 1, consumers = columns * heads;
  static constexpr bool reverse = Reverse, weighted = Weighted, outputs = Outputs;
  static constexpr bool makes_gates = false, gradients = true;
  static constexpr int threads = 128 * consumers;
  static constexpr int blocks_per_multiprocessor =
      linear_attention_blocks(key_width, columns* kValues, outputs);
  static constexpr int stages = columns == 2 || !outputs ? 3 : 2;  // of 16 KiB to 48 KiB
  // Scores are computed a chunk before they are used: 2 to 4 % where blocks wait for memory alone.
  // Where they do not, that asks for a chunk too soon: 4 to 6 % slower (benchmarks/
  // linear_attention.md). With fp16 there are no registers for it.
  static constexpr bool scores_ahead =
      std::is_same_v<T, bf16> && key_width == 64 && columns == 1 && !weighted;
  static constexpr bool late_values = false;  // loaded before the scores are there

  using key_tile = st<T, kChunk, KeyWidth>;   // of q and k
  using value_tile = st<T, kChunk, kValues>;  // of v and o
  using output_tile = value_tile;             // that a store moves
  using state_tile = st<T, kValues, KeyWidth>;
};

// A forward with weights, of narrow heads: nothing is left for gradients, which costs registers.
template <bool Outputs>
struct linear_attention_forward_config
    : linear_attention_config<bf16, 64, 1, /*Reverse=*/false, /*Weighted=*/true, Outputs> {
  static constexpr bool gradients = false;
};

// mamba2's forward: two heads that share q and k side by side, so that these come half as often;
// their gates are made of dt, and nothing is left for gradients. In 128 registers, of which four
// warps of a scheduler have room.
struct linear_attention_pair_config : linear_attention_forward_config</*Outputs=*/true> {
  static constexpr int heads = 2, consumers = heads;
  static constexpr bool makes_gates = true;
  static constexpr int threads = 128 * consumers;
  static constexpr int blocks_per_multiprocessor = kLinearAttentionPairBlocks;
  static constexpr bool late_values = true;
};

// The same where heads are few: seven warpgroups for two heads
// (linear_attention_warp_specialized.cuh).
struct linear_attention_warp_specialized_config : linear_attention_pair_config {
  static constexpr int turns = 2;  // warpgroups that weigh scores, of one chunk after the other
  static constexpr int groups = 2 * heads + turns + 1, threads = 128 * groups;
  static constexpr int blocks_per_multiprocessor = kLinearAttentionWarpSpecializedBlocks;
  static constexpr int stages = 4;
  static_assert(stages % turns == 0, "who takes chunks in turn must see each phase of its stages");
  // A thread's, of the 72 that each has at first.
  static constexpr int output_registers = 80, state_registers = 80, decays_registers = 40;
  static_assert(heads * (output_registers + state_registers) + decays_registers <=
                72 * (groups - turns));
  using output_tile = st<bf16, 16, kValues>;  // of a warp
  using weights_tile = st<bf16, kChunk, kChunk>;
};

// The states of its parts (linear_attention_part_states.cuh): a warpgroup and two warps.
struct linear_attention_part_config : linear_attention_forward_config</*Outputs=*/false> {
  static constexpr bool makes_gates = true;
  static constexpr int threads = 128 + 2 * 32;
  static constexpr int blocks_per_multiprocessor = kLinearAttentionPartBlocks;
  static constexpr int stages = 4;
};

template <class Config>
struct linear_attention_arguments : chunkwise_arguments {
  tma_sequence_map<typename Config::key_tile> q, k;
  tma_sequence_map<typename Config::value_tile> v, dotted;
  tma_sequence_map<typename Config::output_tile> o;
};

// Which of each tensor's heads a block's first head reads, found once: a division is some 40
// instructions, of the thread that the others wait for.
struct heads_read {
  int q, k, v, dotted;

  KITTENS_DEVICE static heads_read of(const chunkwise_arguments& p, int head) {
    return {head / p.q_share, head / p.k_share, head / p.v_share, head / p.dotted_share};
  }
};

// What a consumer has of a chunk's gates and of the next one's.
template <class Config>
struct consumer_decays {
  gates_of_chunk<Config> gates[2];
  decays_of_tokens<kChunk> of_chunk[2];
};

// What copies write comes first, and then what threads do.
template <class Config>
struct state_shared {
  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  consumer_decays<Config> decays[Config::consumers];
  ring<Config::stages> chunks;
  // Of each head, here and not in registers, of which there are none to spare.
  chunk_stream stream[Config::heads];
  places_of_gates places[Config::heads];
  heads_read heads;
};
template <class Config>
struct output_shared {
  typename Config::key_tile k[Config::stages], q[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  typename Config::value_tile o[Config::consumers];  // what is dotted; then o, on its way out
  consumer_decays<Config> decays[Config::consumers];
  typename Config::state_tile state[Config::consumers];  // before the chunk, as a product takes it
  semaphore dotted[Config::consumers];
  ring<Config::stages> chunks;
  chunk_stream stream[Config::heads];
  places_of_gates places[Config::heads];
  places_of_anchors anchors[Config::heads];
  float skip[Config::heads];
  heads_read heads;
};
template <class Config>
using linear_attention_chunkwise_shared =
    std::conditional_t<Config::outputs, output_shared<Config>, state_shared<Config>>;

// What each of a block's heads works on, found by a thread of each.
template <class Config, class Shared>
KITTENS_DEVICE void find_streams(const linear_attention_arguments<Config>& p, Shared& s) {
  const int i = arch::thread_id();
  if (i >= Config::heads) return;
  chunk_stream& stream = s.stream[i];
  stream = chunk_stream::of<Config>(p, arch::block_x());
  if (i == 0) s.heads = heads_read::of(p, stream.head);
  stream.head += i;
  s.places[i] = places_of_gates::of<Config>(p, stream);
  if constexpr (requires { s.anchors; }) s.anchors[i] = places_of_anchors::of<Config>(p, stream);
  if constexpr (Config::outputs) {
    s.skip[i] = p.skip == nullptr ? 0 : arch::load_global(p.skip + stream.head);
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
