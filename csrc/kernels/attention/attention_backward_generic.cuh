// attention, backward, for every architecture since sm_80: the same products as
// attention_backward.cuh, by mma.sync, ldmatrix and cp.async, between the same kernels.
//
// A block has one tile: `keys` keys of a key head, 16 or 32 for each warp, whose dk and dv stay in
// registers while the blocks of queries that see them go by, of all the heads that share them:
//
//   sᵀ = k qᵀ, dpᵀ = v doᵀ;  p = exp(scale · s − lse), ds = p ∘ (dp − delta);
//   dv += pᵀ do, dk += dsᵀ q;  dq = ds k, added up in global memory in integers
//
// Accumulators are laid out as left sides of products are, so p and ds go from registers into dv
// and dk. Through shared memory goes ds alone, for dq, where warps have some rows and columns each.
// Where dk and dv are too large for that, `sharers` warps share keys: of dk and dv each has a part
// of the columns, of s and dp a part of the rows, and p and ds pass through shared memory.
//
// Why these five products, with dq in integers, and not a second pass for dq: that would be seven,
// and torch's FlashAttention has five too. A block adds up 4 bytes for each element of dq and reads
// 4 of q and do; between them are 10 · keys operations an element, 1280 for 128 keys. (Integers
// take as many bytes as floats would, and add up to the same bits in any order.) And what goes
// before and after the products is the same as on Hopper.
//
// Shared memory bounds it as much as the tensor cores do. With 128 keys and head dimension 128,
// 64 queries are 5.2 million fused multiply-adds, 5120 cycles of an A100's tensor cores. Their
// operands are 832 KB, 6656 cycles at 128 bytes, where a warp has 16 keys; and 622 KB, 4860 cycles,
// where it has 32.
//
// Synchronisation, a block of queries: all wait for its copies and meet; they meet again over ds.
// What has two stages is on its way during all of the step: all have met since they read it. The
// rest they load once all have read it: do behind dv, if they meet over ds then; or else both
// during dq, for which they meet a third time.
//
// Source: Dao, FlashAttention-2 (2023).
#pragma once

#include <algorithm>

#include "kernels/attention/attention_backward_dq.cuh"
#include "kernels/attention/attention_backward_softmax.cuh"
#include "kernels/attention/attention_generic_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// SharedKb: what a block may have, by the architecture.
template <class T, int HeadDim, bool Capped,
          int SharedKb = host::facts_of(host::architecture::KITTENS_TARGET).block_shared_kb>
struct attention_backward_generic_config {
  using type = T;
  using rows_config = attention_backward_rows_config<T, HeadDim>;
  static constexpr attention_backward_generic_form form = backward_generic_form(HeadDim, SharedKb);
  static constexpr int head_dim = HeadDim, keys = form.keys, sharers = form.sharers;
  static constexpr bool capped = Capped;  // whether there is a softcap
  static constexpr int rows = form.rows;  // of a block of queries: of the layout's, a part
  static_assert(form.head_dim == HeadDim && rows_config::rows % rows == 0);
  static constexpr bool shares = sharers > 1;
  static constexpr int stages = form.stages, gradient_stages = form.gradient_stages;
  static constexpr int warp_keys = form.key_tiles * kBase;
  static constexpr int key_groups = keys / warp_keys, warps = key_groups * sharers;
  static constexpr int threads = warps * kWarp;
  // Of a warp: rows of s and dp, columns of dk and dv. And of dq: rows, and columns; and those that
  // it computes at a time. (With 64 at a time, the form of 16 keys for 256 spills on sm_120.)
  static constexpr int score_rows = rows / sharers, columns = head_dim / sharers;
  static constexpr int dq_tiles = shares ? form.key_tiles : 1, dq_rows = dq_tiles * kBase;
  static constexpr int row_groups = rows / dq_rows, dq_columns = head_dim * row_groups / warps;
  static constexpr int dq_step = std::min(dq_columns, dq_tiles > 1 ? 64 : 32);

  using key_tile = st<T, keys, head_dim>;            // k, v; and then dk, dv
  using row_tile = st<T, rows, head_dim>;            // q, do
  using factor_tile = st<T, warp_keys, score_rows>;  // what a warp has of dsᵀ, and of pᵀ
};

template <class Config>
struct attention_backward_generic_shared {
  using factors = typename Config::factor_tile[Config::key_groups][Config::sharers];
  typename Config::key_tile k, v;
  typename Config::row_tile q[Config::stages], d_o[Config::gradient_stages];
  factors ds[Config::shares ? 2 : 1];  // and pᵀ, where keys are shared
  attention_backward_tile tile;
  attention_row_block<Config::rows> row_block[Config::stages];
};

template <class Config>
struct attention_backward_generic_arguments : attention_backward_call<Config::rows> {
  attention_operand<const typename Config::type> q, d_o, k, v;
  attention_operand<typename Config::type> dk, dv;
  bool needs_dq;
};

template <class Config>
class attention_backward_generic_block {
  using T = typename Config::type;
  using key_tile = typename Config::key_tile;
  using row_tile = typename Config::row_tile;
  using factor_tile = typename Config::factor_tile;
  using factors = typename attention_backward_generic_shared<Config>::factors;
  using walk = query_blocks_walk<Config>;
  using scores = rt_fl<Config::warp_keys, Config::score_rows>;  // [keys, rows]: s and p, dp and ds
  using factor = rt<T, Config::warp_keys, Config::score_rows>;
  using gradient = rt_fl<Config::warp_keys, Config::columns>;
  static constexpr int kTiles = Config::form.key_tiles;

 public:
  KITTENS_DEVICE attention_backward_generic_block(
      const attention_backward_generic_arguments<Config>& p,
      attention_backward_generic_shared<Config>& shared)
      : p(p), shared(shared) {}

  KITTENS_DEVICE void compute() {
    zero(dk);
    zero(dv);
    walk at(p, shared.tile);
    if (at.left > 0) {
      load_rows<Config::threads>(shared.k, keys_of(p.k));
      load_rows<Config::threads>(shared.v, keys_of(p.v));
      load_queries(at, 0);
      load_gradients(at, 0);
      arch::cp_async_commit();
    }
    for (int stage = 0; at.left > 0; stage ^= 1) {
      step(at, stage);
      at.next();
    }
    finish();
  }

 private:
  const attention_backward_generic_arguments<Config>& p;
  attention_backward_generic_shared<Config>& shared;
  gradient dk, dv;

  // Of this warp: which keys, and which part of them.
  KITTENS_DEVICE static int key_group() { return arch::warp_id() % Config::key_groups; }
  KITTENS_DEVICE static int part() {
    return Config::shares ? arch::warp_id() / Config::key_groups : 0;
  }

  template <class Operand>
  KITTENS_DEVICE auto keys_of(const Operand& operand) const {
    const attention_backward_tile& tile = shared.tile;
    const int first = tile.n * Config::keys;
    return operand.rows(tile.batch, tile.key_head, tile.k_start + first, tile.keys - first);
  }
  template <class Operand>
  KITTENS_DEVICE auto rows_of(const Operand& operand, const walk& at) const {
    const attention_backward_tile& tile = shared.tile;
    const int first = at.m * Config::rows;
    return operand.rows(tile.batch, at.head, tile.q_start + first, tile.rows - first);
  }

  // With what the softmax reads of the rows.
  KITTENS_DEVICE void load_queries(const walk& at, int stage) {
    load_rows<Config::threads>(shared.q[stage], rows_of(p.q, at));
    const int pair = arch::thread_id();
    if (pair < Config::rows / 2) {
      arch::cp_async<16>(&shared.row_block[stage].pairs[pair], &p.row_blocks[at.block].pairs[pair]);
    }
  }
  KITTENS_DEVICE void load_gradients(const walk& at, int stage) {
    load_rows<Config::threads>(shared.d_o[stage], rows_of(p.d_o, at));
  }
  // Of the block behind `at`, what has so many stages; when all have met since they read it.
  template <int Stages>
  KITTENS_DEVICE void load_next(const walk& at, int stage) {
    if (at.left == 1) return;
    walk next = at;
    next.next();
    const int other = Stages == 2 ? stage ^ 1 : 0;
    if constexpr (Config::stages == Stages) load_queries(next, other);
    if constexpr (Config::gradient_stages == Stages) load_gradients(next, other);
  }

  // A block of queries. `turn`: 0 and 1 by turns.
  KITTENS_DEVICE void step(const walk& at, int turn) {
    const int stage = Config::stages == 2 ? turn : 0;
    const row_tile& q = shared.q[stage];
    const row_tile& d_o = shared.d_o[Config::gradient_stages == 2 ? turn : 0];
    arch::cp_async_wait<0>();
    arch::sync_block();
    load_next<2>(at, turn);
    const attention_backward_softmax<Config::rows, Config::capped> softmax{p};
    const int first_row = part() * Config::score_rows;
    const auto* const rows = shared.row_block[stage].pairs + first_row / 2;
    scores s, dp;
    score(s, shared.k, q);
    softmax.softmax(s, shared.tile, shared.tile.n * Config::keys + key_group() * Config::warp_keys,
                    at.m * Config::rows + first_row, rows);
    score(dp, shared.v, d_o);
    softmax.gradient(dp, s, rows);
    factor weights, ds;
    copy(weights, s);
    copy(ds, dp);
    store_unfenced(shared.ds[0][key_group()][part()], ds);
    if constexpr (Config::shares) {
      store_unfenced(shared.ds[1][key_group()][part()], weights);
      arch::sync_block();
      add_product(dv, shared.ds[1], d_o);
      add_product(dk, shared.ds[0], q);
      if constexpr (Config::stages == 1 || Config::gradient_stages == 1) {
        arch::sync_block();
        load_next<1>(at, turn);
      }
    } else {
      static_assert(Config::stages == 2, "all meet while q is still to be read");
      add_product(dv, weights, d_o);
      arch::sync_block();
      load_next<1>(at, turn);
      add_product(dk, ds, q);
    }
    arch::cp_async_commit();
    if (p.needs_dq) add_dq(at.block);
  }

  // s = left right ᵀ, of this warp's keys and rows.
  KITTENS_DEVICE static void score(scores& s, const key_tile& left, const row_tile& right) {
    const int of_keys =
        left_index<false, key_tile>() + key_group() * Config::warp_keys * key_tile::chunk_cols;
    const int of_rows =
        right_index<false, row_tile>() + part() * Config::score_rows * row_tile::chunk_cols;
    zero(s);
#pragma unroll
    for (int c = 0; c < Config::head_dim; c += kBase) {
      fragment keys[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        load_fragment<false>(keys[m], left, of_keys, m * kBase, c);
      }
#pragma unroll
      for (int n = 0; n < Config::score_rows / kBase; ++n) {
        fragment rows;
        load_fragment<false>(rows, right, of_rows, n * kBase, c);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) multiply<T>(s, m, n, keys[m], rows);
      }
    }
  }

  // d += left · right, of this warp's keys and columns.
  template <class Left>
  KITTENS_DEVICE static void add_product(gradient& d, const Left& left, const row_tile& right) {
    const int first =
        detail::moved_index<row_tile>(right_index<true, row_tile>(), 0, part() * Config::columns);
#pragma unroll
    for (int n = 0; n < Config::rows / kBase; ++n) {
      fragment keys[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) load_left(keys[m], left, m, n);
#pragma unroll
      for (int c = 0; c < Config::columns / kBase; ++c) {
        fragment columns;
        load_fragment<true>(columns, right, first, n * kBase, c * kBase);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) multiply<T>(d, m, c, keys[m], columns);
      }
    }
  }
  // 16 of the warp's keys and 16 of the block's rows: from registers, or from shared memory.
  KITTENS_DEVICE static void load_left(fragment& to, const factor& left, int m, int n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = left.data[m][4 * n + i];
  }
  KITTENS_DEVICE static void load_left(fragment& to, const factors& left, int m, int n) {
    const int row = n * kBase;
    load_fragment<false>(to, left[key_group()][row / Config::score_rows],
                         left_index<false, factor_tile>(), m * kBase, row % Config::score_rows);
  }

  // ---- dq = ds k. A warp has some rows, and some columns.

  KITTENS_DEVICE static int dq_row() {
    return arch::warp_id() % Config::row_groups * Config::dq_rows;
  }
  KITTENS_DEVICE static int dq_column() {
    return arch::warp_id() / Config::row_groups * Config::dq_columns;
  }
  // Of this lane's rows.
  KITTENS_DEVICE float* dq_factors_of(int64_t block) const {
    return p.dq_factors + block * Config::rows + dq_row() + arch::lane_id() / 4;
  }
  // Where the integers of a block's dq are, of 16 of its rows from `first` on, and of columns from
  // `column` on: parts are 64 × 64.
  KITTENS_DEVICE auto dq_pairs_of(int64_t block, int first, int column) const {
    const int64_t row = block * Config::rows + first;
    attention_dq_part& part = p.dq[row / 64 * (Config::head_dim / 64) + column / 64];
    return part.pairs[row % 64 / kBase] + column % 64 / 4;
  }

  KITTENS_DEVICE void add_dq(int64_t block) const {
    float* const place = dq_factors_of(block);
    attention_dq_rows rows[Config::dq_tiles];  // not before: registers are scarce
#pragma unroll
    for (int i = 0; i < Config::dq_tiles; ++i) {
      rows[i] = attention_dq_rows::load(place + i * kBase);
    }
    const int of_ds = left_index<true, factor_tile>();
#pragma unroll
    for (int column = 0; column < Config::dq_columns; column += Config::dq_step) {
      const int of_k =
          detail::moved_index<key_tile>(right_index<true, key_tile>(), 0, dq_column() + column);
      rt_fl<kBase, Config::dq_step> dq[Config::dq_tiles];
#pragma unroll
      for (int i = 0; i < Config::dq_tiles; ++i) zero(dq[i]);
#pragma unroll
      for (int n = 0; n < Config::keys / kBase; ++n) {
        fragment ds[Config::dq_tiles];
#pragma unroll
        for (int i = 0; i < Config::dq_tiles; ++i) {
          const int row = dq_row() + i * kBase;
          load_fragment<true>(ds[i], shared.ds[0][n / kTiles][row / Config::score_rows], of_ds,
                              n % kTiles * kBase, row % Config::score_rows);
        }
#pragma unroll
        for (int c = 0; c < Config::dq_step / kBase; ++c) {
          fragment keys;
          load_fragment<true>(keys, shared.k, of_k, n * kBase, c * kBase);
#pragma unroll
          for (int i = 0; i < Config::dq_tiles; ++i) multiply<T>(dq[i], 0, c, ds[i], keys);
        }
      }
#pragma unroll
      for (int i = 0; i < Config::dq_tiles; ++i) {
        rows[i].add(dq_pairs_of(block, dq_row() + i * kBase, dq_column() + column), dq[i]);
        if (rows[i].is_checked()) attention_dq_rows::mark_not_finite(place + i * kBase, dq[i]);
      }
    }
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void finish() {
    arch::sync_block();  // all have read k
    rt<T, Config::warp_keys, Config::columns> result;
    copy(result, dv);
    group<Config::key_groups>::store_unfenced(columns_of(shared.v), result);
    mul(dk, dk, p.dk_scale);
    copy(result, dk);
    group<Config::key_groups>::store_unfenced(columns_of(shared.k), result);
    arch::sync_block();
    store_rows<Config::threads>(keys_of(p.dv), shared.v);
    store_rows<Config::threads>(keys_of(p.dk), shared.k);
  }
  // This part's.
  KITTENS_DEVICE static auto& columns_of(key_tile& tile) {
    using columns = st<T, Config::keys, Config::columns>;
    static_assert(columns::chunk_cols == key_tile::chunk_cols);
    return reinterpret_cast<columns&>(tile.data[part() * columns::num_elements]);
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads) attention_backward_generic(
    const __grid_constant__ attention_backward_generic_arguments<Config> p) {
  begin_dependent_grid();
  auto& shared =
      *reinterpret_cast<attention_backward_generic_shared<Config>*>(arch::dynamic_shared());
  const tile_place place = p.tiles.place(arch::block_x());
  const auto tile = p.template tile_at<Config::keys, Config::rows_config::rows>(place);
  if (tile.n * Config::keys >= tile.keys) return;  // a number of no block
  // In shared memory, for registers are scarce.
  if (arch::thread_id() == 0) shared.tile = tile;
  arch::sync_block();
  attention_backward_generic_block<Config>(p, shared).compute();
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
