// attention, backward, generic: what a block has, and its products.
// (attention_backward_generic.cuh)
#pragma once

#include <algorithm>

#include "kernels/attention/attention_backward_add_dq.cuh"
#include "kernels/attention/attention_backward_softmax.cuh"
#include "kernels/attention/attention_generic_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// SharedKb: what a block may have, by the architecture.
template <class T, int HeadDim, bool Capped,
          int SharedKb = host::facts_of(host::architecture::KITTENS_TARGET).block_shared_kb>
struct attention_backward_generic_config {
  using type = T;
  using rows_config = attention_backward_rows_config<T, HeadDim, /*AddsDq=*/true>;
  static constexpr attention_backward_generic_form form = backward_generic_form(HeadDim, SharedKb);
  static constexpr int head_dim = HeadDim, keys = form.keys, sharers = form.sharers;
  static constexpr bool capped = Capped;  // whether there is a softcap
  static constexpr int rows = form.rows;  // of a block of queries: of the layout's, a part
  static_assert(form.head_dim == HeadDim && rows_config::rows % rows == 0);
  static constexpr bool shares = sharers > 1;
  static constexpr int roles = form.halves ? 2 : 1;  // of warps
  static constexpr int stages = form.stages, gradient_stages = form.gradient_stages;
  static constexpr int warp_keys = form.key_tiles * kBase;
  static constexpr int key_groups = keys / warp_keys, role_warps = key_groups * sharers;
  static constexpr int warps = role_warps * roles;
  static constexpr int threads = warps * kWarp;
  // Of a warp: rows of s and dp, columns of dk and dv. And of dq: rows, and columns; and those that
  // it computes at a time. (With 64 at a time, the form of 16 keys for 256 spills on sm_120.)
  static constexpr int score_rows = rows / sharers, columns = head_dim / sharers;
  static constexpr int dq_tiles = shares || form.halves ? form.key_tiles : 1;
  static constexpr int dq_rows = dq_tiles * kBase;
  static constexpr int row_groups = rows / dq_rows, dq_columns = head_dim * row_groups / warps;
  static constexpr bool steps_wide = form.halves ? form.waits && !Capped : dq_tiles > 1;
  static constexpr int dq_step = std::min(dq_columns, steps_wide ? 64 : 32);

  // Halves: dq's other half waits for the next block of queries, if all the rest has two stages.
  static constexpr bool waits = form.halves && form.waits;
  static constexpr int ds_stages = waits ? 2 : 1;
  // Beside ds: pᵀ, where keys are shared; and with halves what goes from one to the other.
  static constexpr int more_factors = form.halves + shares;

  using key_tile = st<T, keys, head_dim>;            // k, v; and then dk, dv
  using row_tile = st<T, rows, head_dim>;            // q, do
  using factor_tile = st<T, warp_keys, score_rows>;  // what a warp has of dsᵀ, and of pᵀ
};

template <class Config>
struct attention_backward_generic_shared {
  using factors = typename Config::factor_tile[Config::key_groups][Config::sharers];
  typename Config::key_tile k, v;
  typename Config::row_tile q[Config::stages], d_o[Config::gradient_stages];
  factors ds[Config::ds_stages + Config::more_factors];
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
class attention_backward_generic_products {
 public:
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

  const attention_backward_generic_arguments<Config>& p;
  attention_backward_generic_shared<Config>& shared;

  // Of this warp: which keys, and which part of them.
  KITTENS_DEVICE static int key_group() { return arch::warp_id() % Config::key_groups; }
  KITTENS_DEVICE static int part() {
    return Config::shares ? arch::warp_id() % Config::role_warps / Config::key_groups : 0;
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
  // Keys, values and the first block, if there is one.
  KITTENS_DEVICE void load_first(const walk& at) {
    if (at.left == 0) return;
    load_rows<Config::threads>(shared.k, keys_of(p.k));
    load_rows<Config::threads>(shared.v, keys_of(p.v));
    load_queries(at, 0);
    load_gradients(at, 0);
    arch::cp_async_commit();
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

  // d += left · right, of the rows of the block that `owner` of those who share keys has.
  template <class Left>
  KITTENS_DEVICE static void add_part(gradient& d, const Left& left, const row_tile& right,
                                      int owner) {
    const int first =
        detail::moved_index<row_tile>(right_index<true, row_tile>(), 0, part() * Config::columns) +
        owner * Config::score_rows * row_tile::chunk_cols;
#pragma unroll
    for (int n = 0; n < Config::score_rows / kBase; ++n) {
      fragment keys[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) load_part(keys[m], left, m, n);
#pragma unroll
      for (int c = 0; c < Config::columns / kBase; ++c) {
        fragment columns;
        load_fragment<true>(columns, right, first, n * kBase, c * kBase);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) multiply<T>(d, m, c, keys[m], columns);
      }
    }
  }
  template <class Factors>
  KITTENS_DEVICE static void add_other_parts(gradient& d, const Factors& left,
                                             const row_tile& right) {
#pragma unroll
    for (int i = 1; i < Config::sharers; ++i) {
      const int owner = (part() + i) % Config::sharers;
      add_part(d, left[key_group()][owner], right, owner);
    }
  }
  KITTENS_DEVICE static void load_part(fragment& to, const factor& left, int m, int n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = left.data[m][4 * n + i];
  }
  KITTENS_DEVICE static void load_part(fragment& to, const factor_tile& left, int m, int n) {
    load_fragment<false>(to, left, left_index<false, factor_tile>(), m * kBase, n * kBase);
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

  KITTENS_DEVICE void add_dq(int64_t block, int turn = 0) const {
    float* const place = dq_factors_of(block);
    attention_dq_rows rows[Config::dq_tiles];  // not before: registers are scarce
#pragma unroll
    for (int i = 0; i < Config::dq_tiles; ++i) {
      rows[i] = attention_dq_rows::load(place + i * kBase);
    }
    const int of_ds = left_index<true, factor_tile>();
#pragma unroll 1
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
          load_fragment<true>(ds[i], shared.ds[turn][n / kTiles][row / Config::score_rows], of_ds,
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

  // This part's.
  KITTENS_DEVICE static auto& columns_of(key_tile& tile) {
    using columns = st<T, Config::keys, Config::columns>;
    static_assert(columns::chunk_cols == key_tile::chunk_cols);
    return reinterpret_cast<columns&>(tile.data[part() * columns::num_elements]);
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
