// attention, backward, generic: half of a block's warps compute s, p and dv, the others dp, ds and
// dk, and both dq. (attention_backward_generic.cuh)
//
// Then a warp has one accumulator, not two, of as many numbers, and a tile of s or of dp that is
// larger: with head dimension 256, 64 queries and 64 keys read and write 608 KB of shared memory,
// not 752. What of p and ds is a warp's own goes from registers into dv and dk. From one half to
// the other goes p.
//
// Where ds has two stages, the second half computes its part of a block's dq when the first one is
// at the next block's s: while either is at the softmax, the other one is at products.
#pragma once

#include "kernels/attention/attention_backward_generic_products.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// What goes from one half to the other, each number as the sum of two: the 16 bits of p are too few
// for ds. (Of fp16 the second is a multiple, for it would be zero below 2^-25.) A lane reads what
// the same lane of the other half has written: 16 bytes of each 16 × 16 numbers.
template <class T, class Tile>
class attention_backward_factors {
 public:
  KITTENS_DEVICE attention_backward_factors(Tile& high, Tile& low)
      : high(reinterpret_cast<uint4*>(high.data) + arch::lane_id()),
        low(reinterpret_cast<uint4*>(low.data) + arch::lane_id()) {}

  struct base_tile {
    uint32_t high[4], low[4];
    KITTENS_DEVICE void get(float& x, float& y, int i) const {
      float low_x, low_y;
      unpack<T>(x, y, high[i]);
      unpack<T>(low_x, low_y, low[i]);
      x = fmaf(low_x, 1.0f / kMultiple, x);
      y = fmaf(low_y, 1.0f / kMultiple, y);
    }
    KITTENS_DEVICE void set(float x, float y, int i) {
      float high_x, high_y;
      high[i] = pack<T>(x, y);
      unpack<T>(high_x, high_y, high[i]);
      low[i] = pack<T>((x - high_x) * kMultiple, (y - high_y) * kMultiple);
    }
  };
  KITTENS_DEVICE void store(int line, int t, const base_tile& from) const {
    arch::store_shared(high + place(line, t), words_of(from.high));
    arch::store_shared(low + place(line, t), words_of(from.low));
  }
  KITTENS_DEVICE base_tile load(int line, int t) const {
    const uint4 h = arch::load_shared(high + place(line, t));
    const uint4 l = arch::load_shared(low + place(line, t));
    return {{h.x, h.y, h.z, h.w}, {l.x, l.y, l.z, l.w}};
  }

 private:
  static constexpr float kMultiple = std::same_as<T, half> ? 0x1p15f : 1.0f;
  uint4 *high, *low;

  KITTENS_DEVICE static int place(int line, int t) {
    return (line * (Tile::cols / kBase) + t) * kWarp;
  }
  KITTENS_DEVICE static uint4 words_of(const uint32_t (&from)[4]) {
    return {from[0], from[1], from[2], from[3]};
  }
};

template <class Config>
struct attention_backward_generic_halves : attention_backward_generic_products<Config> {
  using base = attention_backward_generic_products<Config>;
  using base::add_dq, base::add_other_parts, base::add_part, base::columns_of, base::key_group,
      base::keys_of, base::load_first, base::p, base::part, base::score, base::shared;
  using typename base::factor, typename base::factor_tile, typename base::gradient,
      typename base::key_tile, typename base::row_tile, typename base::scores, typename base::walk;
  using softmax_of_block = attention_backward_softmax<Config::rows, Config::capped>;
  using exchange = attention_backward_factors<typename Config::type, factor_tile>;

  KITTENS_DEVICE void compute() {
    walk at(p, shared.tile);
    load_first(at);
    run(at);
  }

 private:
  // ---- Who meets: besides all of the block,

  // the two warps of the same keys and rows, over p,
  static constexpr int kOverWeights = 1, kPairThreads = 2 * kWarp;
  // all over ds, which half of them have written,
  static constexpr int kOverDs = kOverWeights + Config::role_warps;
  // and those of a role that share keys.
  static constexpr int kSharers = kOverDs + 1, kSharerThreads = Config::sharers * kWarp;
  static_assert(kSharers + 2 * Config::key_groups <= 16);

  KITTENS_DEVICE static int over_weights() {
    return kOverWeights + arch::warp_id() % Config::role_warps;
  }
  KITTENS_DEVICE static void meet_sharers() {
    const int role = arch::warp_id() / Config::role_warps;
    arch::named_barrier_sync(kSharers + role * Config::key_groups + key_group(), kSharerThreads);
  }

  // ---- Of shared.ds: ds, and until then what is low; what is high; and p.

  static constexpr int kHigh = Config::ds_stages, kWeights = kHigh + 1;
  KITTENS_DEVICE static int ds_stage(int turn) { return Config::waits ? turn : 0; }
  KITTENS_DEVICE exchange exchange_of(int turn) const { return {own(kHigh), own(ds_stage(turn))}; }
  // What this warp has there.
  KITTENS_DEVICE factor_tile& own(int i) const { return shared.ds[i][key_group()][part()]; }

  // Both halves run the same code (benchmarks/attention.md: faster than two loops). The first has
  // k, q and do where the second has v, do and q.
  KITTENS_DEVICE static int role() { return arch::warp_id() / Config::role_warps; }
  KITTENS_DEVICE const row_tile& rows_of_block(bool gradients, int turn) const {
    return gradients ? shared.d_o[Config::gradient_stages == 2 ? turn : 0]
                     : shared.q[Config::stages == 2 ? turn : 0];
  }

  KITTENS_DEVICE void run(walk at) {
    gradient sums;
    zero(sums);
    const bool second = role() != 0;
    if (second && Config::waits) begin_if_there(at, 0);
#pragma unroll 1
    for (int turn = 0; at.left > 0; turn ^= 1) {
      if (!second || !Config::waits) begin(at, turn);
      scores s;
      score(s, *(second ? &shared.v : &shared.k), rows_of_block(second, turn));
      factor left;
      if (second) {
        differentiate(left, s, turn);
      } else {
        weigh(left, s, at, turn);
      }
      const row_tile& right = rows_of_block(!second, turn);
      add_part(sums, left, right, part());
      if constexpr (Config::shares) {
        meet_sharers();
        add_other_parts(sums, shared.ds[second ? ds_stage(turn) : kWeights], right);
      }
      const int64_t block = at.block;
      if constexpr (Config::waits) {
        at.next();
        if (second) {
          begin_if_there(at, turn ^ 1);
        } else if (p.needs_dq) {
          arch::named_barrier_sync(kOverDs, Config::threads);
        }
        if (p.needs_dq) add_dq(block, turn);
      } else {
        arch::sync_block();
        base::template load_next<1>(at, turn);
        if constexpr (Config::stages == 1) arch::cp_async_commit();
        if (p.needs_dq) add_dq(block);
        at.next();
      }
    }
    if (Config::waits && !second) arch::sync_block();
    if (second) mul(sums, sums, p.scale);
    finish(sums, *(second ? &shared.k : &shared.v), second ? p.dk : p.dv);
  }

  // p of a block of queries, of this warp's keys and rows, from s.
  KITTENS_DEVICE void weigh(factor& weights, scores& s, const walk& at, int turn) {
    const softmax_of_block softmax{p};
    const int first_row = part() * Config::score_rows;
    const auto* const rows = row_pairs(turn);
    softmax.softmax(s, shared.tile, shared.tile.n * Config::keys + key_group() * Config::warp_keys,
                    at.m * Config::rows + first_row, rows);
    if constexpr (Config::capped) softmax.weights(s, weights, rows);
    const exchange to = exchange_of(turn);
#pragma unroll
    for (int line = 0; line < factor::lines; ++line) {
#pragma unroll
      for (int t = 0; t < factor::line_tiles; ++t) {
        typename exchange::base_tile tile;
#pragma unroll
        for (int i = 0; i < factor::kPairs; ++i) {
          float x, y;
          s.get(x, y, line, t, i);
          tile.set(x, y, i);
          if (!Config::capped) weights.data[line][t * factor::kPairs + i] = tile.high[i];
        }
        to.store(line, t, tile);
      }
    }
    if constexpr (Config::shares) store_unfenced(own(kWeights), weights);
    arch::named_barrier_arrive(over_weights(), kPairThreads);
  }
  // ds, from dp.
  KITTENS_DEVICE void differentiate(factor& ds, scores& dp, int turn) {
    const softmax_of_block softmax{p};
    arch::named_barrier_sync(over_weights(), kPairThreads);
    softmax.gradient(dp, exchange_of(turn), row_pairs(turn));
    copy(ds, dp);
    arch::sync_warp();  // ds takes the place of p
    store_unfenced(own(ds_stage(turn)), ds);
    if constexpr (Config::waits) {
      if (p.needs_dq) arch::named_barrier_arrive(kOverDs, Config::threads);
    }
  }
  KITTENS_DEVICE auto row_pairs(int turn) const {
    return shared.row_block[Config::stages == 2 ? turn : 0].pairs + part() * Config::score_rows / 2;
  }

  KITTENS_DEVICE void begin_if_there(const walk& at, int turn) {
    if (at.left > 0) {
      begin(at, turn);
    } else {
      arch::sync_block();
    }
  }
  KITTENS_DEVICE void begin(const walk& at, int turn) {
    arch::cp_async_wait<0>();
    arch::sync_block();
    base::template load_next<2>(at, turn);
    if constexpr (Config::stages == 2) arch::cp_async_commit();
  }

  // dk takes the place of k, or dv that of v.
  KITTENS_DEVICE void finish(const gradient& d, key_tile& place,
                             const attention_operand<typename Config::type>& to) {
    arch::sync_block();  // all have read k
    rt<typename Config::type, Config::warp_keys, Config::columns> result;
    copy(result, d);
    group<Config::key_groups>::store_unfenced(columns_of(place), result);
    // Those of a role meet, and store it.
    arch::named_barrier_sync(kOverWeights + arch::warp_id() / Config::role_warps,
                             Config::role_warps * kWarp);
    store_rows<Config::role_warps * kWarp>(keys_of(to), place);
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
