// based_attention: a configuration of the kernel, its shared memory and tensors, and the stream of
// chunks that a block works on. (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_features.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

inline constexpr int kChunk = kBasedChunk;
inline constexpr int kValues = kBasedBlockValues;

// Outputs: else the states at the ends of segments alone.
template <class T, bool Outputs>
struct based_attention_config {
  using type = T;
  static constexpr bool outputs = Outputs;
  static constexpr int threads = 128;
  // State, o, scores and the features of q take 184 registers a thread; stages, features, state and
  // o 84 KiB.
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int stages = 3;

  using key_tile = st<T, kChunk, kKeys>;         // of q and k
  using value_tile = st<T, kChunk, kValues>;     // of v and o
  using feature_tile = st<T, kChunk, kColumns>;  // of k's features
  using state_tile = st<T, kValues, kColumns>;
};

template <class Config>
struct based_attention_arguments {
  tma_sequence_map<typename Config::key_tile> q, k;
  tma_sequence_map<typename Config::value_tile> v, o;
  const float* initial_state;  // [B, H, F, V]; or null
  const float* initial_sums;   // [B, H, F]
  float* final_state;
  float* final_sums;
  float* segment_states;                             // [segments, B, H, F, V]; or null: one segment
  float* segment_sums;                               // [segments, B, H, F]
  int batch, length, heads, keys, values, features;  // B, S, H, D, V, F
  int segments, segment_chunks;                      // of a sequence; chunks of a segment
  float scale, eps;
  bool normalize;
};

template <class Config>
struct based_attention_shared {
  typename Config::key_tile q[Config::outputs ? Config::stages : 1];
  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages];
  typename Config::feature_tile features;
  typename Config::state_tile state;  // before the chunk, weighted, as a product takes it
  typename Config::value_tile o;      // on its way out
  ring<Config::stages> chunks;
};

// What a block works on: a segment of a head's sequence, and 64 of its values.
struct chunk_stream {
  int batch, head, part, segment;
  int first, count;  // chunks

  template <class Config>
  KITTENS_DEVICE static chunk_stream of(const based_attention_arguments<Config>& p) {
    int of_all = arch::block_x();
    const auto take = [&](int extent) {
      const int index = of_all % extent;
      of_all /= extent;
      return index;
    };
    chunk_stream s;
    s.part = take((p.values + kValues - 1) / kValues);
    s.head = take(p.heads);
    s.segment = take(p.segments);
    s.batch = of_all;
    const int all = (p.length + kChunk - 1) / kChunk;
    s.first = s.segment * p.segment_chunks;
    s.count = all - s.first < p.segment_chunks ? all - s.first : p.segment_chunks;
    return s;
  }
  KITTENS_DEVICE int token(int step) const { return (first + step) * kChunk; }
};

// 16 rows of a tile as an operand in registers, from `row` and `column` on; Transposed: 16 columns,
// as rows of the operand. The caller fences before a copy overwrites them.
template <bool Transposed, class T, int Rows, int Cols>
KITTENS_DEVICE void load_fragment(uint32_t* words, const st<T, Rows, Cols>& tile, int row,
                                  int column) {
  const int lane = arch::lane_id(), first = lane / 8 % 2 * 8, second = lane / 16 * 8;
  uint32_t loaded[4];
  arch::load_matrix<Transposed>(loaded, &tile(row + (Transposed ? second : first) + lane % 8,
                                              column + (Transposed ? first : second)));
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = loaded[i];
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
