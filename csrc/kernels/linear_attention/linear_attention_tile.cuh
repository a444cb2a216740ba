// linear attention: a configuration of the kernel, its shared memory and tensors, and the stream of
// chunks that a block works on. (linear_attention_chunkwise.cuh)
#pragma once

#include <kittens.cuh>

#include "kernels/linear_attention/linear_attention.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kChunk = kLinearAttentionChunk;
inline constexpr int kValues = 64;  // columns of v and o that a consumer works on

// KeyWidth: K is at most this; TMA fills up with zeros. Reverse: from the last token to the first.
// Outputs: else the states at the ends of segments alone.
template <class T, int KeyWidth, int Consumers, bool Reverse, bool Outputs>
struct linear_attention_config {
  using type = T;
  static constexpr int key_width = KeyWidth, consumers = Consumers;
  static constexpr bool reverse = Reverse, outputs = Outputs;
  static constexpr int threads = 128 * consumers;
  // State, scores and o take 96 registers a thread at key width 64, and 128 at 128; the operands in
  // registers and the decays half as many. A chunk is 24 KiB to 48 KiB.
  static constexpr int blocks_per_multiprocessor = consumers == 2 ? 1 : key_width == 64 ? 3 : 2;
  static constexpr int stages = consumers == 2 ? 3 : 2;

  using key_tile = st<T, kChunk, KeyWidth>;   // of q and k
  using value_tile = st<T, kChunk, kValues>;  // of v and o
  using state_tile = st<T, kValues, KeyWidth>;
};

// States [values, keys] of each head of a batch.
struct head_states {
  float* data;  // null: zeros, or nobody wants it
  int64_t batch_stride, head_stride, key_stride, value_stride;
};

template <class Config>
struct linear_attention_arguments {
  tma_sequence_map<typename Config::key_tile> q, k;
  tma_sequence_map<typename Config::value_tile> v, o;
  const float* log_decay;  // [B, S, H] by strides; or null: no decay
  linear_attention_strides decay_strides;
  const float *k_weights, *o_weights;  // [B, S, H] by strides; null: 1. k's not in reverse
  linear_attention_strides weight_strides;
  const float* skip;  // [H]; or null: 0
  head_states initial, final;
  head_states segment_states;  // of the first segment; and the next ones behind it
  int64_t segment_stride;
  float* segment_decays;                // [segments, B, H], log₂
  const typename Config::type* dotted;  // by strides, as o
  linear_attention_strides dotted_strides;
  float* dots;                                  // [B, S, H, consumers]; or null
  float* own_scores;                            // [B, S, H]; or null
  int batch, length, heads, keys, values;       // B, S, H, K, V
  int q_share, k_share, v_share, dotted_share;  // heads that read one of the tensor's
  int segments, segment_chunks;                 // of a sequence; chunks of a segment
  float scale, initial_scale, final_scale;
};

template <class Config>
struct linear_attention_shared {
  typename Config::key_tile q[Config::outputs ? Config::stages : 1];
  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages][Config::consumers];
  typename Config::state_tile state[Config::consumers];  // before the chunk, as a product takes it
  typename Config::value_tile o[Config::consumers];      // on its way out
  sv<float, kChunk> decay[4 * Config::consumers];        // of each warp: Σ log₂ decay to each token
  ring<Config::stages> chunks;
};

// What a block works on: a segment of a head's sequence.
struct chunk_stream {
  int batch, head, segment;
  int first, count;  // chunks

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
    s.segment = take(p.segments);
    s.batch = of_all;
    const int all = (p.length + kChunk - 1) / kChunk;
    s.first = s.segment * p.segment_chunks;
    s.count = all - s.first < p.segment_chunks ? all - s.first : p.segment_chunks;
    return s;
  }
  // Where a token's number lies, of each batch, token and head.
  KITTENS_DEVICE const float* of_token(const float* data, const linear_attention_strides& strides,
                                       int token) const {
    return data + batch * strides.batch + token * strides.token + head * strides.head;
  }
  // The first token of the chunk that comes at this step.
  template <class Config>
  KITTENS_DEVICE int token(int step) const {
    return (Config::reverse ? first + count - 1 - step : first + step) * kChunk;
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
