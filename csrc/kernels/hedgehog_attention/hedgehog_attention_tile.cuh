// hedgehog attention: a configuration of the kernel, its shared memory and tensors, and the stream
// of blocks of tokens that a block of threads works on. (hedgehog_attention_forward.cuh)
#pragma once

#include <kittens.cuh>

#include "kernels/hedgehog_attention/hedgehog_attention.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kBlock = kHedgehogBlock;      // tokens
inline constexpr int kWidth = kHedgehogHeadDim;    // columns of q, k and v at most, and features
inline constexpr int kHalf = kHedgehogMapColumns;  // features of one of the two softmaxes
static_assert(kWidth == 2 * kHalf);
inline constexpr int kConsumers = 2;
inline constexpr int kThreads = 128 * kConsumers;
inline constexpr int kStages = 3;  // blocks of keys: the two of a window, for two blocks of queries

// Columns: of q, k and v at most, 64 or 128. Outputs: else the states at the ends of segments
// alone.
template <class T, int Columns, bool Outputs>
struct hedgehog_config {
  using type = T;
  static constexpr int columns = Columns;
  static constexpr bool outputs = Outputs;

  using token_tile = st<T, kBlock, Columns>;  // of q, k, v and y
  using map_tile = st<T, Columns, kHalf>;
  using feature_tile = st<T, kBlock, kHalf>;  // of one of the two softmaxes
  using state_tile = st<T, kHalf, Columns>;   // [features, values]
};

// What a call is given, beside the tensors that either kernel reads and writes in tiles.
struct forward_arguments {
  const float* alpha;  // [H]
  const float* beta;
  const int* first;          // [B], or null
  const float* initial_kv;   // [B, H, features, values], or null
  const float* initial_sum;  // [B, H, features], or null
  float* final_kv;           // null: not wanted
  float* final_sum;
  // [parts of all segments but the last, B, H, features, values], but of Hopper's kernel
  // [parts, B, H, two softmaxes, pieces of four values, 128 threads].
  float* part_kv;
  float* part_sum;               // [parts, B, H, features]
  int batch, length, heads;      // B, S, H
  int head_dim, value_dim;       // columns of q and k, and of v: tiles have zeros behind them
  int missing;                   // rows of the window before q, of which k and v have none: 64 or 0
  int segments, segment_blocks;  // of a sequence; blocks of a segment, even
  int parts, part_blocks;        // of a segment, likewise
  bool passed;                   // the last part of a segment has the sum of all up to it
  float score_scale;             // to log₂
};

template <class Config>
struct hedgehog_arguments : forward_arguments {
  tma_sequence_map<typename Config::token_tile> q, k, v, y;
  tma_map<typename Config::map_tile> q_map, k_map;
};

// What a block of threads works on: a segment of a head's sequence, or without outputs a part of
// one that others follow. Blocks of keys are counted from the one before the first query, so that
// query block b has the keys b and b + 1 in its window, and those before b in its state.
struct block_stream {
  int batch, head;
  int index;      // of the segment, or of the part among those of all segments
  int begin;      // block
  int count;      // of blocks
  int steps;      // of two blocks
  int first_row;  // of the keys, the first that exists

  template <class Config>
  KITTENS_DEVICE static block_stream of(const forward_arguments& p) {
    int of_all = arch::block_x();
    const auto take = [&](int extent) {
      const int index = of_all % extent;
      of_all /= extent;
      return index;
    };
    block_stream s;
    s.head = take(p.heads);
    s.index = take(Config::outputs ? p.segments : (p.segments - 1) * p.parts);
    s.batch = of_all;
    if constexpr (Config::outputs) {
      const int all = (p.length + kBlock - 1) / kBlock;
      s.begin = s.index * p.segment_blocks;
      s.count = all - s.begin < p.segment_blocks ? all - s.begin : p.segment_blocks;
    } else {
      const int before = s.index % p.parts * p.part_blocks, left = p.segment_blocks - before;
      s.begin = s.index / p.parts * p.segment_blocks + before;
      s.count = left < p.part_blocks ? left : p.part_blocks;
    }
    s.steps = (s.count + 1) / 2;
    s.first_row = p.first != nullptr ? arch::load_global(p.first + s.batch) : p.missing;
    return s;
  }
};

template <class Config>
struct hedgehog_attention_forward_shared {
  static constexpr bool kOutputs = Config::outputs;
  typename Config::map_tile q_map, k_map;
  typename Config::token_tile q[kOutputs ? kConsumers : 1];
  typename Config::token_tile k[kStages], v[kStages];
  // φ of two blocks of keys, by softmax; then y on its way out.
  typename Config::feature_tile features[kConsumers][2];
  typename Config::state_tile state[kOutputs ? 2 : 1];  // as a product takes it, by softmax
  sv<float, kHalf> sums[2][2];                          // Σ φ(k) of every other block, by softmax
  block_stream stream;
  semaphore maps_full, q_full[kConsumers], k_full[kStages], v_full[kStages];
};

// A state in memory as a warpgroup's threads have it: pieces of 16 bytes, of 128 threads each.
template <class State>
KITTENS_DEVICE void add_pieces(State& state, const float4* from) {
#pragma unroll
  for (int i = 0; i < State::cols / 8; ++i) {
    const float4 x = arch::load_global(from + 128 * i);
    float* to = state.data[0] + 4 * i;
    to[0] += x.x;
    to[1] += x.y;
    to[2] += x.z;
    to[3] += x.w;
  }
}
template <class State>
KITTENS_DEVICE void store_pieces(float4* to, const State& state) {
#pragma unroll
  for (int i = 0; i < State::cols / 8; ++i) {
    const float* x = state.data[0] + 4 * i;
    arch::store_global(to + 128 * i, float4{x[0], x[1], x[2], x[3]});
  }
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
