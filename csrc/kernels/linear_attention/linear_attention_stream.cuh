// linear attention: what a block works on, a stream of a head's chunks, and what every kernel is
// given for it. (linear_attention_chunkwise.cuh, linear_attention_generic.cuh)
#pragma once

#include <kittens.cuh>

#include <type_traits>

#include "kernels/linear_attention/linear_attention.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kValues = 64;  // columns of v and o that four warps work on

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

// What every kernel of a call is given, beside the tensors that it reads and writes in tiles.
struct chunkwise_arguments {
  const float* log_decay;  // [B, S, H] by strides; or null: no decay
  linear_attention_strides decay_strides;
  const float *k_weights, *o_weights;  // [B, S, H] by strides; null: 1. k's not in reverse
  linear_attention_strides weight_strides;
  linear_attention_steps steps;  // what both are made of; or dt null
  const float* skip;             // [H]; or null: 0
  head_states initial, final;
  head_states part_states;  // of the first part; and the next ones behind it
  int64_t part_stride;      // elements
  float* part_decays;       // [parts, N, H], log₂
  uint4* anchor_states;     // or null
  float* anchor_products;
  int anchor_warps;      // of a head's state
  bool anchors_first;    // of a sequence's first token, too
  bool is_behind_parts;  // the kernel in front has found the parts' states, and writes nothing else
  int anchor;            // tokens from one to the next: a power of two
  float* dots;           // Σ o ∘ dotted over 64 columns, [B, S, H, values / 64]; or null
  float* own_scores;     // [B, S, H]; or null
  int batch, length, heads, keys, values;  // B, S, H, K, V
  packed_ends ends;
  int sequences;                                // N: those packed into one batch; or B
  int q_share, k_share, v_share, dotted_share;  // heads that read one of the tensor's
  int segments, segment_chunks;                 // of a sequence; chunks of a segment
  int parts, part_chunks;                       // the same of those parts that are read
  float scale, initial_scale, final_scale;
};

// Whether a chunk's scores are weighted by factors (linear_attention_decays.cuh). `total`: log₂ of
// its decay.
template <class T>
KITTENS_DEVICE bool takes_factors(float total) {
  constexpr float kLeastFactor = -32;
  return std::is_same_v<T, bf16> && total >= kLeastFactor;
}

// What a block works on: a segment of a head's sequence, or a part of it, in chunks of the
// kernel's.
struct chunk_stream {
  int sequence, head, index;  // the segment, or the part
  int batch, start, length;   // where the sequence lies: tokens `start` … of the batch
  int chunks, first, count;   // all of the sequence; those of the segment, or the part
  sequence_origin origin;     // where TMA finds the sequence

  // Number `of_all` of all segments, or parts, of all heads, or the first of as many as a block
  // has.
  template <class Config>
  KITTENS_DEVICE static chunk_stream of(const chunkwise_arguments& p, int of_all) {
    const auto take = [&](int extent) {
      const int index = of_all % extent;
      of_all /= extent;
      return index;
    };
    chunk_stream s;
    s.head = take(p.heads / Config::heads) * Config::heads;
    s.index = take(Config::outputs ? p.segments : p.parts);
    // Nobody reads the parts of the last segment in the order of the recurrence.
    if (!Config::outputs && Config::reverse) s.index += p.segment_chunks / p.part_chunks;
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
    s.chunks = (s.length + Config::chunk - 1) / Config::chunk;
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
  KITTENS_DEVICE int64_t place(const chunkwise_arguments& p, int token) const {
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
    return (Config::reverse ? first + count - 1 - step : first + step) * Config::chunk;
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
