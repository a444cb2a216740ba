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
// of the columns, of s and dp a part of the rows, and p and ds of the others come through shared
// memory. Or half of the warps have dv, and the others dk: attention_backward_generic_halves.cuh.
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

#include "kernels/attention/attention_backward_generic_halves.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
class attention_backward_generic_block : attention_backward_generic_products<Config> {
  using base = attention_backward_generic_products<Config>;
  using base::add_dq, base::add_other_parts, base::add_part, base::columns_of, base::key_group,
      base::keys_of, base::load_first, base::p, base::part, base::score, base::shared;
  using typename base::factor, typename base::gradient, typename base::row_tile,
      typename base::scores, typename base::walk;

 public:
  KITTENS_DEVICE attention_backward_generic_block(
      const attention_backward_generic_arguments<Config>& p,
      attention_backward_generic_shared<Config>& shared)
      : base{p, shared} {}

  KITTENS_DEVICE void compute() {
    zero(dk);
    zero(dv);
    walk at(p, shared.tile);
    load_first(at);
    for (int stage = 0; at.left > 0; stage ^= 1) {
      step(at, stage);
      at.next();
    }
    finish();
  }

 private:
  gradient dk, dv;

  // A block of queries. `turn`: 0 and 1 by turns. Where the copies are asked for, and whether the
  // warp's own part of dk comes before the others', is as measured (benchmarks/attention.md: 3 % at
  // head dimension 128; at 64 the other way round).
  KITTENS_DEVICE void step(const walk& at, int turn) {
    const int stage = Config::stages == 2 ? turn : 0;
    const row_tile& q = shared.q[stage];
    const row_tile& d_o = shared.d_o[Config::gradient_stages == 2 ? turn : 0];
    arch::cp_async_wait<0>();
    arch::sync_block();
    if constexpr (!Config::shares) base::template load_next<2>(at, turn);
    const attention_backward_softmax<Config::rows, Config::capped> softmax{p};
    const int first_row = part() * Config::score_rows;
    const auto* const rows = shared.row_block[stage].pairs + first_row / 2;
    scores s, dp;
    score(s, shared.k, q);
    if constexpr (Config::shares) base::template load_next<2>(at, turn);
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
      add_part(dv, weights, d_o, part());
      arch::sync_block();
      add_part(dk, ds, q, part());
      add_other_parts(dv, shared.ds[1], d_o);
      add_other_parts(dk, shared.ds[0], q);
      if constexpr (Config::stages == 1 || Config::gradient_stages == 1) {
        arch::sync_block();
        base::template load_next<1>(at, turn);
      }
    } else {
      static_assert(Config::stages == 2, "all meet while q is still to be read");
      add_part(dv, weights, d_o, 0);
      arch::sync_block();
      base::template load_next<1>(at, turn);
      add_part(dk, ds, q, 0);
    }
    arch::cp_async_commit();
    if (p.needs_dq) add_dq(at.block);
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void finish() {
    arch::sync_block();  // all have read k
    rt<typename Config::type, Config::warp_keys, Config::columns> result;
    copy(result, dv);
    group<Config::key_groups>::store_unfenced(columns_of(shared.v), result);
    mul(dk, dk, p.scale);
    copy(result, dk);
    group<Config::key_groups>::store_unfenced(columns_of(shared.k), result);
    arch::sync_block();
    store_rows<Config::threads>(keys_of(p.dv), shared.v);
    store_rows<Config::threads>(keys_of(p.dk), shared.k);
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
  if constexpr (Config::form.halves) {
    attention_backward_generic_halves<Config>{p, shared}.compute();
  } else {
    attention_backward_generic_block<Config>(p, shared).compute();
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
