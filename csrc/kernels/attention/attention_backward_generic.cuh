// attention, backward, for every architecture since sm_80: the same products as
// attention_backward.cuh, by mma.sync, ldmatrix and cp.async, between the same kernels.
//
// A block has one tile: `keys` keys of a key head, 16 for each warp, whose dk and dv stay in
// registers while the blocks of queries that see them go by, of all the heads that share them:
//
//   sᵀ = k qᵀ, dpᵀ = v doᵀ;  p = exp(scale · s − lse), ds = p ∘ (dp − delta);
//   dv += pᵀ do, dk += dsᵀ q;  dq = ds k, added up in global memory in integers
//
// Accumulators are laid out as left sides of products are, so p and ds go from registers into dv
// and dk. Through shared memory goes ds alone, for dq, where warps have some rows and columns each.
// Of heads above 128 dk and dv are too large for that: `halves` warps share 16 keys. Of dk and dv
// each has one half of the columns, of s and dp one half of the rows, and p and ds pass through
// shared memory.
//
// Why these five products, with dq in integers, and not a second pass for dq: that would be seven,
// and torch's FlashAttention has five too. A block adds up 4 bytes for each element of dq and reads
// 4 of q and do; between them are 10 · keys operations an element, 1280 for 128 keys. (Integers
// take as many bytes as floats would, and add up to the same bits in any order.) And what goes
// before and after the products is the same as on Hopper.
//
// Shared memory bounds it as much as the tensor cores do. With 128 keys and head dimension 128, a
// block of 32 queries is 2.6 million fused multiply-adds, 2560 cycles of an A100's tensor cores;
// its operands are 416 KB, 3328 cycles at 128 bytes. More rows a warp would read less, and need
// more registers than there are.
//
// Synchronisation, a block of queries: all wait for its copies and meet; they meet again over ds,
// when do has been read and can be loaded again. q has two stages, the next one on its way during
// all of the step: all have met since they read it. (Above 128 there is no room for the second:
// they meet a third time, and both are loaded during dq.)
//
// Source: Dao, FlashAttention-2 (2023).
#pragma once

#include <algorithm>

#include "kernels/attention/attention_backward_dq.cuh"
#include "kernels/attention/attention_backward_softmax.cuh"
#include "kernels/attention/attention_generic_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class T, int HeadDim>
struct attention_backward_generic_config {
  using type = T;
  using rows_config = attention_backward_rows_config<T, HeadDim>;
  static constexpr attention_backward_generic_form form = backward_generic_form(HeadDim);
  static constexpr int head_dim = HeadDim, keys = form.keys, halves = form.halves;
  static constexpr int rows = form.rows;  // of a block of queries: of the layout's, a part
  static_assert(form.head_dim == HeadDim && rows_config::rows % rows == 0);
  static constexpr bool wide = halves > 1;
  static constexpr int stages = wide ? 1 : 2;  // of queries
  static constexpr int key_groups = keys / kBase, warps = key_groups * halves;
  static constexpr int threads = warps * kWarp;
  // Of a warp: rows of s and dp, columns of dk and dv. And of dq, which has as many row groups as
  // there are 16 rows, columns; those that it computes at a time.
  static constexpr int score_rows = rows / halves, columns = head_dim / halves;
  static constexpr int row_groups = rows / kBase, dq_columns = head_dim * row_groups / warps;
  static constexpr int dq_step = std::min(dq_columns, 64);

  using key_tile = st<T, keys, head_dim>;        // k, v; and then dk, dv
  using row_tile = st<T, rows, head_dim>;        // q, do
  using factor_tile = st<T, kBase, score_rows>;  // what a warp has of dsᵀ; wide: and of pᵀ
};

template <class Config>
struct attention_backward_generic_shared {
  using factors = typename Config::factor_tile[Config::key_groups][Config::halves];
  typename Config::key_tile k, v;
  typename Config::row_tile q[Config::stages], d_o;
  factors ds[Config::wide ? 2 : 1];  // wide: that, and pᵀ
  attention_row_block<Config::rows> row_block[Config::stages];
};

template <class Config>
struct attention_backward_generic_arguments : attention_backward_call<Config::rows> {
  attention_operand<const typename Config::type> q, d_o, k, v;
  attention_operand<typename Config::type> dk, dv;
  bool capped, needs_dq;
};

template <class Config>
class attention_backward_generic_block {
  using T = typename Config::type;
  using key_tile = typename Config::key_tile;
  using row_tile = typename Config::row_tile;
  using factor_tile = typename Config::factor_tile;
  using factors = typename attention_backward_generic_shared<Config>::factors;
  using walk = query_blocks_walk<Config>;
  using scores = rt_fl<kBase, Config::score_rows>;  // [keys, rows]: s and p, dp and ds
  using factor = rt<T, kBase, Config::score_rows>;
  using gradient = rt_fl<kBase, Config::columns>;

 public:
  KITTENS_DEVICE attention_backward_generic_block(
      const attention_backward_generic_arguments<Config>& p,
      attention_backward_generic_shared<Config>& shared, const attention_backward_tile& tile)
      : p(p), shared(shared), tile(tile) {}

  KITTENS_DEVICE void compute() {
    zero(dk);
    zero(dv);
    walk at(p, tile);
    if (at.left > 0) {
      load_rows<Config::threads>(shared.k, keys_of(p.k));
      load_rows<Config::threads>(shared.v, keys_of(p.v));
      load_queries(at, 0);
      load_gradients(at);
    }
    for (int stage = 0; at.left > 0; stage = (stage + 1) % Config::stages) {
      walk next = at;
      next.next();
      step(at, next, stage);
      at = next;
    }
    finish();
  }

 private:
  const attention_backward_generic_arguments<Config>& p;
  attention_backward_generic_shared<Config>& shared;
  const attention_backward_tile tile;
  gradient dk, dv;

  // Of this warp: which keys, and which half.
  KITTENS_DEVICE static int key_group() { return arch::warp_id() % Config::key_groups; }
  KITTENS_DEVICE static int half_index() {
    return Config::wide ? arch::warp_id() / Config::key_groups : 0;
  }

  template <class Operand>
  KITTENS_DEVICE auto keys_of(const Operand& operand) const {
    const int first = tile.n * Config::keys;
    return operand.rows(tile.batch, tile.key_head, tile.k_start + first, tile.keys - first);
  }
  template <class Operand>
  KITTENS_DEVICE auto rows_of(const Operand& operand, const walk& at) const {
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
  // The last copies of a step: one group has them all.
  KITTENS_DEVICE void load_gradients(const walk& at) {
    load_rows<Config::threads>(shared.d_o, rows_of(p.d_o, at));
    arch::cp_async_commit();
  }

  // A block of queries.
  KITTENS_DEVICE void step(const walk& at, const walk& next, int stage) {
    const row_tile& q = shared.q[stage];
    arch::cp_async_wait<0>();
    arch::sync_block();
    if constexpr (!Config::wide) {
      if (next.left > 0) load_queries(next, (stage + 1) % Config::stages);
    }
    float* const dq_place = dq_factors_of(at.block);
    const attention_dq_rows dq_rows = attention_dq_rows::load(dq_place);
    scores s, dp;
    score(s, shared.k, q);
    score(dp, shared.v, shared.d_o);
    if (p.capped) {
      weigh<true>(s, dp, at, stage);
    } else {
      weigh<false>(s, dp, at, stage);
    }
    factor weights, ds;
    copy(weights, s);
    copy(ds, dp);
    store_unfenced(shared.ds[0][key_group()][half_index()], ds);
    if constexpr (Config::wide) {
      store_unfenced(shared.ds[1][key_group()][half_index()], weights);
      arch::sync_block();
      add_product(dv, shared.ds[1], shared.d_o);
      add_product(dk, shared.ds[0], q);
      arch::sync_block();
      if (next.left > 0) {
        load_queries(next, 0);
        load_gradients(next);
      }
    } else {
      add_product(dv, weights, shared.d_o);
      arch::sync_block();
      if (next.left > 0) load_gradients(next);
      add_product(dk, ds, q);
    }
    if (p.needs_dq) add_dq(at.block, dq_rows, dq_place);
  }

  // s = left right ᵀ, of this warp's keys and rows.
  KITTENS_DEVICE static void score(scores& s, const key_tile& left, const row_tile& right) {
    const int of_keys = left_index<false, key_tile>() + key_group() * kBase * key_tile::chunk_cols;
    const int of_rows =
        right_index<false, row_tile>() + half_index() * Config::score_rows * row_tile::chunk_cols;
    zero(s);
#pragma unroll
    for (int c = 0; c < Config::head_dim; c += kBase) {
      fragment keys;
      load_fragment<false>(keys, left, of_keys, 0, c);
#pragma unroll
      for (int n = 0; n < Config::score_rows / kBase; ++n) {
        fragment rows;
        load_fragment<false>(rows, right, of_rows, n * kBase, c);
        multiply<T>(s, n, keys, rows);
      }
    }
  }

  // s becomes p, and dp ds.
  template <bool Capped>
  KITTENS_DEVICE void weigh(scores& s, scores& dp, const walk& at, int stage) const {
    const attention_backward_softmax<Config::rows, Capped> softmax{p};
    const int first = half_index() * Config::score_rows;
    const auto* const rows = shared.row_block[stage].pairs + first / 2;
    softmax.softmax(s, tile, tile.n * Config::keys + key_group() * kBase,
                    at.m * Config::rows + first, rows);
    softmax.gradient(dp, s, rows);
  }

  // d += left · right, of this warp's keys and columns.
  template <class Left>
  KITTENS_DEVICE static void add_product(gradient& d, const Left& left, const row_tile& right) {
    const int first = detail::moved_index<row_tile>(right_index<true, row_tile>(), 0,
                                                    half_index() * Config::columns);
#pragma unroll
    for (int n = 0; n < Config::rows / kBase; ++n) {
      fragment keys;
      load_left(keys, left, n);
#pragma unroll
      for (int c = 0; c < Config::columns / kBase; ++c) {
        fragment columns;
        load_fragment<true>(columns, right, first, n * kBase, c * kBase);
        multiply<T>(d, c, keys, columns);
      }
    }
  }
  // 16 of the block's rows: from registers, or from shared memory.
  KITTENS_DEVICE static void load_left(fragment& to, const factor& left, int n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = left.data[0][4 * n + i];
  }
  KITTENS_DEVICE static void load_left(fragment& to, const factors& left, int n) {
    const int row = n * kBase;
    load_fragment<false>(to, left[key_group()][row / Config::score_rows],
                         left_index<false, factor_tile>(), 0, row % Config::score_rows);
  }

  // ---- dq = ds k. A warp has 16 rows, and some columns.

  KITTENS_DEVICE static int dq_row() { return arch::warp_id() % Config::row_groups * kBase; }
  KITTENS_DEVICE static int dq_column() {
    return arch::warp_id() / Config::row_groups * Config::dq_columns;
  }
  // Of this lane's rows.
  KITTENS_DEVICE float* dq_factors_of(int64_t block) const {
    return p.dq_factors + block * Config::rows + dq_row() + arch::lane_id() / 4;
  }
  // Where the integers of a block's dq are, from one of this warp's columns on: parts are 64 × 64.
  KITTENS_DEVICE auto dq_pairs_of(int64_t block, int column) const {
    const int64_t row = block * Config::rows + dq_row();
    attention_dq_part& part = p.dq[row / 64 * (Config::head_dim / 64) + column / 64];
    return part.pairs[row % 64 / kBase] + column % 64 / 4;
  }

  KITTENS_DEVICE void add_dq(int64_t block, const attention_dq_rows& rows, float* place) const {
    const int of_rows = dq_row() % Config::score_rows, part = dq_row() / Config::score_rows;
    const int of_ds = left_index<true, factor_tile>();
#pragma unroll
    for (int column = 0; column < Config::dq_columns; column += Config::dq_step) {
      const int of_k =
          detail::moved_index<key_tile>(right_index<true, key_tile>(), 0, dq_column() + column);
      rt_fl<kBase, Config::dq_step> dq;
      zero(dq);
#pragma unroll
      for (int n = 0; n < Config::key_groups; ++n) {
        fragment ds;
        load_fragment<true>(ds, shared.ds[0][n][part], of_ds, 0, of_rows);
#pragma unroll
        for (int c = 0; c < Config::dq_step / kBase; ++c) {
          fragment keys;
          load_fragment<true>(keys, shared.k, of_k, n * kBase, c * kBase);
          multiply<T>(dq, c, ds, keys);
        }
      }
      rows.add(dq_pairs_of(block, dq_column() + column), dq);
      if (rows.is_checked()) attention_dq_rows::mark_not_finite(place, dq);
    }
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void finish() {
    arch::sync_block();  // all have read k
    rt<T, kBase, Config::columns> result;
    copy(result, dv);
    group<Config::key_groups>::store_unfenced(columns_of(shared.v), result);
    mul(dk, dk, p.dk_scale);
    copy(result, dk);
    group<Config::key_groups>::store_unfenced(columns_of(shared.k), result);
    arch::sync_block();
    store_rows<Config::threads>(keys_of(p.dv), shared.v);
    store_rows<Config::threads>(keys_of(p.dk), shared.k);
  }
  // This half's.
  KITTENS_DEVICE static auto& columns_of(key_tile& tile) {
    using part = st<T, Config::keys, Config::columns>;
    static_assert(part::chunk_cols == key_tile::chunk_cols);
    return reinterpret_cast<part&>(tile.data[half_index() * part::num_elements]);
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
  attention_backward_generic_block<Config>(p, shared, tile).compute();
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
