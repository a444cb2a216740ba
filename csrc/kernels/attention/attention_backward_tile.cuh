// attention, backward: what producer and consumers share. A configuration of the kernel, its shared
// memory and tensors; a tile, and the blocks of queries that see its keys. (attention_backward.cuh)
#pragma once

#include <kittens.cuh>

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

template <class T, int HeadDim, bool Capped>
struct attention_backward_config {
  using type = T;
  static constexpr int head_dim = HeadDim;  // D and Dv are at most this; TMA fills up with zeros
  static constexpr bool capped = Capped;    // whether there is a softcap
  static_assert(HeadDim == 64 || HeadDim == 128);
  static constexpr int consumers = 2;
  static constexpr int keys = 64 * consumers;  // of a tile
  // Of a block of queries. dk and dv take 128 registers a thread at head dimension 128, and s and dp
  // 64 at 64 rows.
  static constexpr int rows = HeadDim == 64 ? 128 : 64;
  static constexpr int stages = 2, ds_stages = 2;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240;

  using key_tile = st<T, 64, HeadDim>;    // of one consumer: k, v; and then dk, dv
  using row_tile = st<T, rows, HeadDim>;  // q, do
  using ds_tile = st<T, 64, rows>;        // dsᵀ of one consumer
  // A consumer's part of a block's dq, 64 × 64: 64 of its rows, or 64 of its columns.
  static constexpr int parts = rows * HeadDim / (64 * 64);
  static_assert(parts == consumers);
};

// What the kernel reads of the rows of a block, one record a block and head.
template <int Rows>
struct alignas(16) attention_row_block {
  // lse · log₂e of rows 2i and 2i + 1, and their delta = Σ do · o − dlse. A row that sees no key, or
  // does not exist, has lse +inf and delta 0: its p and ds are 0.
  struct row_pair {
    float lse[2], delta[2];
  } pairs[Rows / 2];
};

// dq is added up in integers, so that its bits do not depend on the order. Part of a block's dq as
// the products leave it: of each warp, 32 numbers of each lane, by fours.
template <class T>
struct attention_dq_part {
  T numbers[4][8][32][4];
};

// A consumer's, on the way to the warps that add it up; a place for each of its warps.
struct attention_dq_buffer {
  attention_dq_part<float> part;
  semaphore full[4], empty[4];
};

// A tile: number n of the key blocks of a key head.
struct alignas(16) attention_backward_tile {
  int n, key_head, batch;
  static constexpr int kEnd = -1;  // of n: there is no more
};

template <class Config>
struct attention_backward_shared {
  typename Config::key_tile k[Config::consumers], v[Config::consumers];
  typename Config::row_tile q[Config::stages], d_o[Config::stages];
  typename Config::ds_tile ds[Config::ds_stages][Config::consumers];
  attention_dq_part<int> dq[Config::consumers];
  attention_row_block<Config::rows> row_block[Config::stages];
  attention_backward_tile tile;
  ring<1> kv_ring;
  ring<Config::stages> row_ring;
  ring<Config::ds_stages> ds_ring;

  // The same in all lanes, which the compiler must know.
  KITTENS_DEVICE attention_backward_tile read_tile() const {
    return {detail::uniform(tile.n), detail::uniform(tile.key_head), detail::uniform(tile.batch)};
  }
};

template <class Config>
struct attention_backward_arguments {
  tma_sequence_map<typename Config::row_tile> q, d_o;
  tma_sequence_map<typename Config::key_tile> k, v, dk, dv;
  const attention_row_block<Config::rows>* row_blocks;  // [B, Hq, row blocks]
  attention_dq_part<int>* dq;                                // [B, Hq, row blocks, parts]
  float* dq_factors;                              // [B, Hq, row blocks, rows] (attention_backward_rows.cuh)
  tile_scheduler tiles;
  int rows, keys;     // Sq, Sk
  int row_blocks_of_head;
  int heads, heads_per_key;
  int left, right;    // how far a row sees from its diagonal
  float scale;        // what takes s, or tanh of the capped s, to logits
  float scale_log2;   // … in units of log₂
  float cap;          // scale / softcap
  float dk_scale;     // softmax scale

  // The number of a block of queries, of all.
  KITTENS_DEVICE int64_t block_of(int batch, int head, int m) const {
    return (int64_t{batch} * heads + head) * row_blocks_of_head + m;
  }
};

// The blocks of queries that see some key of a tile: [first, end).
struct query_blocks {
  int first, end;

  template <class Config>
  KITTENS_DEVICE static query_blocks of(const attention_backward_arguments<Config>& p,
                                        const attention_backward_tile& tile) {
    const int first_key = tile.n * Config::keys;
    const int last_key = least(first_key + Config::keys, p.keys) - 1;
    const int offset = p.keys - p.rows;
    const int first_row = most(0, first_key - offset - p.right);
    const int end_row = least(p.rows, last_key - offset + p.left + 1);
    if (end_row <= first_row) return {0, 0};
    return {first_row / Config::rows, (end_row + Config::rows - 1) / Config::rows};
  }

 private:
  KITTENS_DEVICE static int least(int x, int y) { return x < y ? x : y; }
  KITTENS_DEVICE static int most(int x, int y) { return x > y ? x : y; }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
