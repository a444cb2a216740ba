// linear attention: a configuration of the kernel, its shared memory and tensors, and the stream of
// chunks that a block works on. (linear_attention_chunkwise.cuh)
#pragma once

#include <kittens.cuh>

#include <type_traits>

#include "kernels/linear_attention/linear_attention.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kChunk = kLinearAttentionChunk;
inline constexpr int kValues = 64;  // columns of v and o that a consumer works on

// KeyWidth: K is at most this; TMA fills up with zeros. Reverse: from the last token to the first.
// Weighted: there are weights or what skips, whose registers cost others 5 % (benchmarks/
// linear_attention.md). Outputs: else the states at the ends of segments alone.
template <class T, int KeyWidth, int Consumers, bool Reverse, bool Weighted, bool Outputs>
struct linear_attention_config {
  using type = T;
  static constexpr int key_width = KeyWidth, consumers = Consumers;
  static constexpr bool reverse = Reverse, weighted = Weighted, outputs = Outputs;
  static constexpr int threads = 128 * consumers;
  static constexpr int blocks_per_multiprocessor =
      linear_attention_blocks(key_width, consumers* kValues, outputs);
  static constexpr int stages = consumers == 2 || !outputs ? 3 : 2;  // of 16 KiB to 48 KiB

  using key_tile = st<T, kChunk, KeyWidth>;   // of q and k
  using value_tile = st<T, kChunk, kValues>;  // of v and o
  using state_tile = st<T, kValues, KeyWidth>;
};

// cu_seqlens: where packed sequences start, and the last one ends.
struct packed_ends {
  const void* numbers;  // or null: not packed
  bool is_int64;        // else int32

  // Number i, but within `least` and `most`.
  KITTENS_DEVICE int at(int i, int least, int most) const {
    const int64_t n = is_int64 ? arch::load_global(static_cast<const int64_t*>(numbers) + i)
                               : arch::load_global(static_cast<const int*>(numbers) + i);
    return n < least ? least : n > most ? most : static_cast<int>(n);
  }
};

// States [values, keys] of each head of a sequence.
struct head_states {
  float* data;  // null: zeros, or nobody wants it
  int64_t sequence_stride, head_stride, key_stride, value_stride;
};

template <class Config>
struct linear_attention_arguments {
  tma_sequence_map<typename Config::key_tile> q, k;
  tma_sequence_map<typename Config::value_tile> v, o, dotted;
  const float* log_decay;  // [B, S, H] by strides; or null: no decay
  linear_attention_strides decay_strides;
  const float *k_weights, *o_weights;  // [B, S, H] by strides; null: 1. k's not in reverse
  linear_attention_strides weight_strides;
  const float* skip;  // [H]; or null: 0
  head_states initial, final;
  head_states part_states;  // of the first part; and the next ones behind it
  int64_t part_stride;      // elements
  float* part_decays;       // [parts, N, H], log₂
  float* dots;              // Σ o ∘ dotted over a consumer's columns, [B, S, H, consumers]; or null
  float* own_scores;        // [B, S, H]; or null
  int batch, length, heads, keys, values;  // B, S, H, K, V
  packed_ends ends;
  int sequences;                                // N: those packed into one batch; or B
  int q_share, k_share, v_share, dotted_share;  // heads that read one of the tensor's
  int segments, segment_chunks;                 // of a sequence; chunks of a segment
  int parts, part_chunks;                       // the same of parts
  float scale, initial_scale, final_scale;
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

// What a block works on: a segment of a head's sequence, or a part of it.
struct chunk_stream {
  int sequence, head, index;  // the segment, or the part
  int batch, start, length;   // where the sequence lies: tokens `start` … of the batch
  int chunks, first, count;   // all of the sequence; those of the segment, or the part
  sequence_origin origin;     // where TMA finds the sequence

  template <class Config>
  KITTENS_DEVICE static chunk_stream of(const linear_attention_arguments<Config>& p) {
    int of_all = arch::block_x();
    const auto take = [&](int extent) {
      const int index = of_all % extent;
      of_all /= extent;
      return index;
    };
    chunk_stream s;
    s.head = take(p.heads);
    s.index = take(Config::outputs ? p.segments : p.parts);
    s.sequence = of_all;
    if (p.ends.numbers == nullptr) {
      s.batch = s.sequence;
      s.start = 0;
      s.length = p.length;
      s.origin = sequence_origin::of(s.batch);
    } else {
      s.batch = 0;
      s.start = p.ends.at(s.sequence, 0, p.length);
      s.length = p.ends.at(s.sequence + 1, s.start, p.length) - s.start;
      s.origin = sequence_origin::packed(s.start, s.length);
    }
    const int most = Config::outputs ? p.segment_chunks : p.part_chunks;
    s.chunks = (s.length + kChunk - 1) / kChunk;
    s.first = s.index * most;
    s.count = s.chunks - s.first < most ? s.chunks - s.first : most;
    return s;
  }
  // Nobody needs it: sequences that are shorter than the longest have fewer segments.
  KITTENS_DEVICE bool is_empty() const { return count <= 0 && index > 0; }
  // Behind the sequence's last chunk, in the order of the recurrence.
  template <class Config>
  KITTENS_DEVICE bool is_last() const {
    return Config::reverse ? index == 0 : first + count >= chunks;
  }
  // Parts that come before the segment, in the order of the recurrence.
  template <class Config>
  KITTENS_DEVICE int parts_before(int part_chunks) const {
    const auto parts_to = [&](int chunk) { return (chunk + part_chunks - 1) / part_chunks; };
    return Config::reverse ? parts_to(chunks) - parts_to(first + count) : parts_to(first);
  }
  // Number i of the parts, in the order of the recurrence.
  template <class Config>
  KITTENS_DEVICE int part(int i, int part_chunks) const {
    return Config::reverse ? (chunks + part_chunks - 1) / part_chunks - 1 - i : i;
  }
  // Which of the numbers of each token and head, [B, S, H], is a token's.
  template <class Config>
  KITTENS_DEVICE int64_t place(const linear_attention_arguments<Config>& p, int token) const {
    return (int64_t{batch} * p.length + start + token) * p.heads + head;
  }
  // Where a token's number lies, of each batch, token and head.
  KITTENS_DEVICE const float* of_token(const float* data, const linear_attention_strides& strides,
                                       int token) const {
    return data + batch * strides.batch + (start + token) * strides.token + head * strides.head;
  }
  // The first token of the chunk that comes at this step, from the sequence's start.
  template <class Config>
  KITTENS_DEVICE int token(int step) const {
    return (Config::reverse ? first + count - 1 - step : first + step) * kChunk;
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
