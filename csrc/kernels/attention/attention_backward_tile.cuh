// attention, backward: a tile, what is known of its call, and the blocks of queries that see its
// keys; and what producer and consumers of the kernel for Hopper share: its configuration, shared
// memory and tensors. (attention_backward.cuh)
#pragma once

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward_sequences.cuh"
#include "kernels/attention/attention_configs.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// What the kernels before and after the products are made for. AddsDq: whether the products' kernel
// adds dq up in global memory; else one of its own computes dq (attention_backward_dq.cuh), as it
// does for heads above 128.
template <class T, int HeadDim, bool AddsDq>
struct attention_backward_rows_config {
  using type = T;
  static constexpr bool adds_dq = AddsDq;
  static constexpr int head_dim = HeadDim;  // D and Dv are at most this
  static_assert(HeadDim == 64 || HeadDim == 128 || HeadDim == 256);
  static constexpr int rows = HeadDim == 64 ? 128 : 64;  // of a block of queries
  // Lanes that share a row of do, k or v, eight elements each.
  static constexpr int row_lanes = HeadDim / 8;
  // Of a block's dq, 64 × 64 each: 64 of its rows, or 64 of its columns.
  static constexpr int parts = rows * HeadDim / (64 * 64);
};

// What one warpgroup has of rt_fl<16, Columns>, for another one: a thread reads what the same
// thread of the other has written.
template <int Columns>
struct attention_backward_exchange {
  float4 words[Columns / 8][128];

  KITTENS_DEVICE void store(const rt_fl<16, Columns>& from) {
#pragma unroll
    for (int i = 0; i < Columns / 8; ++i) {
      const float* const x = &from.data[0][4 * i];
      arch::store_shared(&words[i][arch::thread_id() % 128], float4{x[0], x[1], x[2], x[3]});
    }
  }
  // A thread's numbers of tile t of 16 × 16: four pairs.
  struct base_tile {
    float4 halves[2];
    KITTENS_DEVICE void get(float& x, float& y, int i) const {
      const float4& of = halves[i / 2];
      x = i % 2 == 0 ? of.x : of.z;
      y = i % 2 == 0 ? of.y : of.w;
    }
  };
  KITTENS_DEVICE base_tile load(int, int t) const {
    const float4* const from = &words[2 * t][arch::thread_id() % 128];
    return {{arch::load_shared(from), arch::load_shared(from + 128)}};
  }
};

// The width of the kernels before and after the products, in which dq and the rows' records lie.
template <int HeadDim, int ValueDim>
inline constexpr int kLayoutWidth =
    int(attention_backward_layout::padded(std::max(HeadDim, ValueDim)));

template <class T, int HeadDim, bool Capped, bool AddsDq, int ValueDim = HeadDim>
struct attention_backward_config
    : attention_backward_rows_config<T, kLayoutWidth<HeadDim, ValueDim>, AddsDq> {
  using rows_config = attention_backward_rows_config<T, kLayoutWidth<HeadDim, ValueDim>, AddsDq>;
  using rows_config::rows;
  static constexpr int head_dim = HeadDim, value_dim = ValueDim;
  static constexpr bool capped = Capped;  // whether there is a softcap
  static constexpr int consumers = 2;
  // Up to 128, each consumer has 64 keys of its own, whose dk and dv take 128 registers a thread; s
  // and dp of 64 rows take 64. Beyond, one of them has dv of 64 keys, the other one dk:
  // attention_backward_wide_consumer.
  static constexpr bool wide = HeadDim > 128;
  static_assert(!wide || !AddsDq);
  // Whether both consumers run the same code: their loop is then in the caches of instructions once
  // (D 64, causal: 1 to 5 % faster). At 128 it spills (2 to 4 % slower).
  static constexpr bool shares_code = HeadDim == 64;
  static constexpr int key_tiles = wide ? 1 : consumers;
  static constexpr int keys = 64 * key_tiles;  // of a tile
  static constexpr int stages = 2, ds_stages = 2;
  // Of k and v. Two: the next tile's come beside this one's products, and dk and dv leave beside
  // the next one's (D 64: 1.04 to 1.06 times the rate at 512 keys, 1.02 to 1.06 at 1024). Where dq
  // is added up, of more columns, the stage's number costs registers, which spill (0.82 to 0.88 at
  // 128, 0.95 to 0.99 at 80 and 96); at 256 there is no room.
  static constexpr int kv_stages = HeadDim == 64 || (!wide && !AddsDq) ? 2 : 1;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240;

  using layout = ducks::st_layout::swizzle_128;  // as the forward's
  using k_tile = st<T, 64, HeadDim, layout>;     // and then dk
  using v_tile = st<T, 64, ValueDim, layout>;    // and then dv
  using q_tile = st<T, rows, HeadDim, layout>;
  using d_o_tile = st<T, rows, ValueDim, layout>;
  struct nothing {};
  // What one consumer has for the other: dsᵀ of its 64 keys, where dq is added up; wide: p.
  using ds_tile = std::conditional_t<wide, attention_backward_exchange<rows>,
                                     std::conditional_t<AddsDq, st<T, 64, rows>, nothing>>;
};

// What the kernel reads of the rows of a block, one record a block and head.
template <int Rows>
struct alignas(16) attention_row_block {
  // lse · log₂e of rows 2i and 2i + 1, and their delta = Σ do · o − dlse. A row that sees no key,
  // or does not exist, has lse +inf and delta 0: its p and ds are 0.
  struct row_pair {
    float lse[2], delta[2];
  } pairs[Rows / 2];
};

// dq is added up in integers, so that its bits do not depend on the order; two of them at a time:
// x + y · 2³², modulo 2⁶⁴, adds up to the sums of both. Part of a block's dq as the products leave
// it, of each warp 16 pairs of each lane: a warp adds 256 neighbouring bytes up.
struct attention_dq_part {
  uint64_t pairs[4][16][32];

  // The upper half is y, less the borrow of an x below 0: one instruction.
  KITTENS_DEVICE static uint64_t pack(int x, int y) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(y) - (x < 0)) << 32) |
           static_cast<uint32_t>(x);
  }
  KITTENS_DEVICE static int2 unpack(uint64_t pair) {
    const int x = static_cast<int>(pair);
    return {x, static_cast<int>((pair - static_cast<uint64_t>(int64_t{x})) >> 32)};
  }
};

// A tile: number n of its sequence's key blocks.
struct alignas(16) attention_backward_tile {
  int n, key_head, batch;  // batch 0 where sequences are packed
  int q_start, k_start;    // of the sequence: attention_sequence
  int rows, keys;
  int first_row_block;             // the number of its first block of queries
  static constexpr int kEnd = -1;  // of n: there is no more
};

template <class Config>
struct attention_backward_shared {
  typename Config::k_tile k[Config::kv_stages][Config::key_tiles];
  typename Config::v_tile v[Config::kv_stages][Config::key_tiles];
  typename Config::q_tile q[Config::stages];
  typename Config::d_o_tile d_o[Config::stages];
  typename Config::ds_tile ds[Config::ds_stages][Config::key_tiles];
  attention_row_block<Config::rows> row_block[Config::stages];
  // Brought with the rows: loads from global memory would share their scoreboard with loads of the
  // rows' numbers, which then wait for them as well (8 % of a consumer's samples at head dimension
  // 128). Another block may store NaN there while they are copied (attention_dq_rows::
  // mark_not_finite): with the old factor or with NaN, what this block adds up is not read.
  alignas(16) float dq_factors[Config::stages][Config::rows];
  attention_backward_tile tile[Config::kv_stages];
  ring<Config::kv_stages> kv_ring;
  ring<Config::stages> row_ring;
  ring<Config::ds_stages> ds_ring;

  // The same in all lanes, which the compiler must know.
  KITTENS_DEVICE attention_backward_tile read_tile(int stage) const {
    const attention_backward_tile& t = tile[stage];
    return {detail::uniform(t.n),       detail::uniform(t.key_head),       detail::uniform(t.batch),
            detail::uniform(t.q_start), detail::uniform(t.k_start),        detail::uniform(t.rows),
            detail::uniform(t.keys),    detail::uniform(t.first_row_block)};
  }
};

// What a kernel is told of a call, beside where its tensors are. Its blocks of queries have `Rows`
// rows. dq and its factors: of what is added up.
template <int Rows>
struct attention_backward_call {
  const attention_row_block<Rows>* row_blocks;  // [B, Hq, row blocks]
  attention_dq_part* dq;                        // [B, Hq, row blocks, parts]
  float* dq_factors;                            // [B, Hq, row blocks, rows]
  tile_scheduler tiles;
  attention_sequences sequences;
  int row_blocks_of_head;
  int heads, heads_per_key;
  int left, right;  // how far a row sees from its diagonal
  attention_softcap softcap;
  float scale_log2;  // what takes s, or tanh of the capped s, to logits, in units of log₂
  float scale;       // softmax scale

  // The tile of a place: of `Keys` keys. Of a number of no block, n · Keys is at least its keys.
  // Records lie by blocks of `RecordRows` rows.
  template <int Keys, int RecordRows>
  KITTENS_DEVICE attention_backward_tile tile_at(const tile_place& place) const {
    const int i = sequences.template of_key_block<Keys>(place.m);
    const int n = place.m - sequences.template first_key_block<Keys>(i);
    const attention_sequence at = sequences.at(i, place.batch);
    const int first = sequences.template first_row_block<RecordRows>(i) * (RecordRows / Rows);
    return {n, place.head, place.batch, at.q_start, at.k_start, at.rows, at.keys, first};
  }
  // The number of a block of queries, of all.
  KITTENS_DEVICE int64_t block_of(const attention_backward_tile& tile, int head, int m) const {
    return (int64_t{tile.batch} * heads + head) * row_blocks_of_head + tile.first_row_block + m;
  }
};

// What the kernels for Hopper read by TMA.
template <class Config>
struct attention_backward_operands : attention_backward_call<Config::rows> {
  using attention_backward_call<Config::rows>::sequences;
  tma_sequence_map<typename Config::q_tile> q;
  tma_sequence_map<typename Config::d_o_tile> d_o;
  tma_sequence_map<typename Config::k_tile> k;
  tma_sequence_map<typename Config::v_tile> v;
  bool flat_keys;  // as the forward's
  int k_step, v_step;

  // Where TMA finds the sequence of a tile, and the first row that sees a key there.
  template <class Tile>
  KITTENS_DEVICE sequence_origin q_origin(const Tile& tile) const {
    return sequences.packed() ? sequence_origin::packed(tile.q_start, tile.rows)
                              : sequence_origin::of(tile.batch);
  }
  template <class Tile>
  KITTENS_DEVICE int q_first(const Tile& tile) const {
    return sequences.packed() ? 0 : tile.q_start;
  }
  // `step`: of batches, where keys are flat; dk's and dv's are `sequences.keys`.
  template <class Tile>
  KITTENS_DEVICE sequence_origin k_origin(const Tile& tile, int step) const {
    return flat_keys ? sequence_origin::packed(tile.batch * step + tile.k_start, tile.keys)
                     : sequence_origin::of(tile.batch);
  }
};

template <class Config>
struct attention_backward_arguments : attention_backward_operands<Config> {
  tma_sequence_map<typename Config::k_tile> dk;
  tma_sequence_map<typename Config::v_tile> dv;
};

// The blocks of queries that see some key of a tile: [first, end).
struct query_blocks {
  int first, end;

  template <class Config>
  KITTENS_DEVICE static query_blocks of(const attention_backward_call<Config::rows>& p,
                                        const attention_backward_tile& tile) {
    const int first_key = tile.n * Config::keys;
    const int last_key = least(first_key + Config::keys, tile.keys) - 1;
    const int offset = tile.keys - tile.rows;
    const int first_row = most(0, first_key - offset - p.right);
    const int end_row = least(tile.rows, last_key - offset + p.left + 1);
    if (end_row <= first_row) return {0, 0};
    return {first_row / Config::rows, (end_row + Config::rows - 1) / Config::rows};
  }

 private:
  KITTENS_DEVICE static int least(int x, int y) { return x < y ? x : y; }
  KITTENS_DEVICE static int most(int x, int y) { return x > y ? x : y; }
};

// One after the other: the blocks of queries of a tile, of all its heads.
template <class Config>
struct query_blocks_walk {
  int left;       // with this one
  int m, head;    // number m of the head's blocks
  int64_t block;  // its number, of all

  KITTENS_DEVICE query_blocks_walk(const attention_backward_call<Config::rows>& p,
                                   const attention_backward_tile& tile)
      : blocks(query_blocks::of<Config>(p, tile)) {
    const int of_head = blocks.end - blocks.first;
    left = of_head * p.heads_per_key;
    m = blocks.first;
    head = tile.key_head * p.heads_per_key;
    block = p.block_of(tile, head, m);
    to_next_head = p.row_blocks_of_head - of_head;
  }
  KITTENS_DEVICE void next() {
    --left;
    ++block;
    if (++m == blocks.end) {
      m = blocks.first;
      ++head;
      block += to_next_head;
    }
  }

 private:
  query_blocks blocks;
  int to_next_head;
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
