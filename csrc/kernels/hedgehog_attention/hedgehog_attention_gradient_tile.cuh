// hedgehog attention: a pass of the backward, its shared memory and tensors, and the run of blocks
// that a block of threads works on. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_features.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// What tensors do in a pass:
//
//   pass      rows  row_values  window  window_values  gives
//   states    k     v           –       –              what the rows add to the state: generic
//   queries   q     dy          k       v              dq
//   keys      k     v           q       dy             dk, dv
enum class hedgehog_pass : uint8_t { states, queries, keys };

// Of either kernel.
template <class T, int Pass>  // a hedgehog_pass
struct hedgehog_pass_config {
  using type = T;
  static constexpr auto pass = static_cast<hedgehog_pass>(Pass);
  static constexpr bool is_states = pass == hedgehog_pass::states;
  static constexpr bool is_queries = pass == hedgehog_pass::queries;
  static constexpr bool is_keys = pass == hedgehog_pass::keys;
  static constexpr bool is_of_parts = false;  // else a block of threads has a run
  // The first of the two blocks in the window of block b is b + first_of_window.
  static constexpr int first_of_window = is_queries ? -1 : 0;

  using token_tile = st<T, kBlock, kWidth>;
  using square = st<T, kBlock, kHalf>;    // of tokens and tokens, or features, or half the columns
  using map_tile = st<T, kWidth, kHalf>;  // two squares, one below the other
  using state_tile = st<T, kHalf, kWidth>;  // of one of the two softmaxes, [features, values]
};

// Hopper's, of queries or of keys. Outputs: else what the window's blocks of a part of a run add to
// the state alone.
template <class T, int Pass, bool Outputs>
struct hedgehog_gradient_config : hedgehog_pass_config<T, Pass> {
  static constexpr bool generic = false;
  static constexpr bool outputs = Outputs, is_of_parts = !Outputs;
  static constexpr int blocks_per_multiprocessor = Outputs ? 1 : 2;
  static constexpr int threads = Outputs ? 2 * kThreads : kThreads;
};

// What a pass is given, beside the tensors that either kernel reads and writes in tiles.
struct gradient_arguments {
  float* state_sums;    // [B · H, blocks, features]; Hopper: [parts, B · H, features]
  float4* factors;      // [B · H, blocks · 64], of queries: below
  float* map_parts;     // gradients of the map, [B, runs, H, kWidth, kHalf]
  float* weight_parts;  // [B, runs, H]
  const float* alpha;   // [H]
  const float* beta;
  int batch, length, heads, blocks;  // B, S, H, of S
  int head_dim, value_dim;           // columns of q and k, and of v: tiles have zeros behind them
  int runs, run_blocks;              // of a sequence; blocks of a run
  int parts, part_blocks;            // of a run, likewise
  bool passed;  // the last part of a run, of keys the first one, has the sum of all up to it
  float scale, score_scale;  // of scores; and to log₂
  bool wants_row_gradients, wants_value_gradients;
};

template <class Config>
struct hedgehog_gradient_arguments : gradient_arguments {
  tma_sequence_map<typename Config::token_tile> rows, row_values, window, window_values;
  tma_sequence_map<typename Config::square> row_gradients, value_gradients;
  tma_map<typename Config::map_tile> map, window_map;
  float4* part_states;  // [parts, B · H, two softmaxes, 16, 128 threads]; or null: one run
};

// What a block of threads works on: a run of blocks of tokens of a head; or a part of one, of all
// that another one begins behind: all runs but the last one, or of keys the first one.
struct block_run {
  int batch, head;
  int index;         // of the run, or of the part among those of all such runs
  int begin, count;  // of blocks

  template <class Config>
  KITTENS_DEVICE static block_run of(const gradient_arguments& p) {
    int of_all = arch::block_x();
    const auto take = [&](int extent) {
      const int index = of_all % extent;
      of_all /= extent;
      return index;
    };
    const auto least = [](int a, int b) { return a < b ? a : b; };
    block_run r;
    r.head = take(p.heads);
    r.index = take(Config::is_of_parts ? (p.runs - 1) * p.parts : p.runs);
    r.batch = of_all;
    if constexpr (Config::is_of_parts) {
      const int run = r.index / p.parts + (Config::is_keys ? 1 : 0);
      const int before = r.index % p.parts * p.part_blocks;
      r.begin = run * p.run_blocks + before;
      // Of the last run there may be less parts: none of their blocks.
      r.count = least(p.part_blocks, least(p.run_blocks - before, p.blocks - r.begin));
    } else {
      r.begin = r.index * p.run_blocks;
      // Of the last two blocks of keys there is no state.
      r.count = least(p.run_blocks, p.blocks - (Config::is_states ? 2 : 0) - r.begin);
    }
    return r;
  }
};

// A query's: 1 / its denominator, dy · y, the largest score of its window (before the scale), and
// what each of the largest scores takes of the gradient, for all are relative to it.
//   float4 {reciprocal, delta, largest, of_largest}

// A member of shared memory that a pass has, or does without.
struct nothing {};
template <bool There, class Tile>
using tile_if = std::conditional_t<There, Tile, nothing>;

template <class Config>
struct hedgehog_attention_gradient_shared {
  using row_tile = tile_if<Config::outputs, typename Config::token_tile>;
  using row_square = tile_if<Config::outputs, typename Config::square>;
  // What copies write comes first, and then what threads do.
  tile_if<Config::outputs, typename Config::map_tile> map;
  typename Config::map_tile window_map;
  row_tile rows, row_values;
  typename Config::token_tile window[2], window_values[2];
  typename Config::square features[2];  // of what enters the state; of keys those of rows before
  row_square state[2][2];  // 16-bit [features, values], by half of the values and softmax
  // By block of the window, or by softmax; d_scores and weights are what gradients go out by.
  row_square d_scores[2], d_logits[2];
  tile_if<Config::is_keys && Config::outputs, typename Config::square> weights[2];
  static constexpr int kRowValues = 6;
  tile_if<Config::is_queries, sv<float, kBlock>> of_rows[2][kRowValues];  // of each warpgroup
  sv<float, kHalf> of_columns[2][4];                                      // of its warps
  sv<float, kHalf> state_sums[2];                                         // by softmax
  block_run run;
  semaphore map_full, rows_full, row_values_full, window_full, window_values_full;
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
