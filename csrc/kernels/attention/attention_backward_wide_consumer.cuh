// attention, backward: a consumer where the head dimension is above 128. Both consumers have the
// same 64 keys: the first one computes s, p and dv, the second one dp, ds and dk. So each has one
// accumulator, whose product takes p or ds from registers; from one to the other goes p.
// (attention_backward.cuh)
#pragma once

#include "kernels/attention/attention_backward_softmax.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// W: which of the consumers this warpgroup is.
template <class Config, int W>
class attention_backward_wide_consumer {
 public:
  KITTENS_DEVICE attention_backward_wide_consumer(const attention_backward_arguments<Config>& p,
                                                  attention_backward_shared<Config>& shared)
      : p(p), shared(shared), softmax{p} {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    for (;;) {
      shared.kv_ring.wait_full(kv_at);
      tile = shared.read_tile(0);
      if (tile.n == attention_backward_tile::kEnd) break;
      zero(sum);
      query_blocks_walk<Config> walk(p, tile);
#pragma unroll 1
      for (; walk.left > 0; walk.next()) step(walk.m * Config::rows);
      store_tile();
      kv_at.advance();
    }
  }

 private:
  using T = typename Config::type;
  static_assert(Config::consumers == 2 && Config::kv_stages == 1);
  // A stage of p is free when that of the rows is.
  static_assert(Config::ds_stages == Config::stages);
  static constexpr bool kGradients = W == 1;  // dp, ds and dk
  static constexpr int kBarrier = 1;          // of all, and one a consumer
  // [keys, rows]: s and p, or dp and ds
  using scores = rt_fl<16, Config::rows>;
  using weights_tile = rt<T, 16, Config::rows>;
  using row_pair = attention_row_block<Config::rows>::row_pair;
  const attention_backward_arguments<Config>& p;
  attention_backward_shared<Config>& shared;
  const attention_backward_softmax<Config::rows, Config::capped> softmax;
  attention_backward_tile tile;
  cursor<Config::kv_stages> kv_at;
  cursor<Config::stages> at;
  static constexpr int kColumns = kGradients ? Config::head_dim : Config::value_dim;
  rt_fl<16, kColumns> sum;  // dk, or dv

  // Of what the two consumers do alike with other operands, this one's: that of dk, or of dv.
  template <class X, class Y>
  KITTENS_DEVICE static auto& choose(X& of_gradients, Y& of_weights) {
    if constexpr (kGradients) {
      return of_gradients;
    } else {
      return of_weights;
    }
  }

  // A block of queries, whose first row is `row`.
  KITTENS_DEVICE void step(int row) {
    scores s;
    weights_tile weights;
    shared.row_ring.wait_full(at);
    const auto& q = shared.q[at.stage];
    const auto& d_o = shared.d_o[at.stage];
    const row_pair* const rows = shared.row_block[at.stage].pairs;
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, choose(shared.v, shared.k)[0][0], choose(d_o, q));
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(s);
    if constexpr (kGradients) {
      differentiate(weights, s, rows);
    } else {
      weigh(weights, s, row, rows);
    }
    // The rows' numbers, and p, have been read.
    arch::fence_async_proxy();
    arch::sync_warp();
    if (!kGradients && arch::lane_id() == 0) arrive(shared.ds_ring.full[at.stage]);
    warpgroup::mma_fence(weights, sum);
    warpgroup::mma_AB(sum, weights, choose(q, d_o));
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(sum);
    if (arch::lane_id() == 0) shared.row_ring.release_after_mma(at);
    at.advance();
  }

  // p from s.
  KITTENS_DEVICE void weigh(weights_tile& weights, scores& s, int row, const row_pair* rows) {
    softmax.softmax(s, tile, tile.n * Config::keys + arch::warp_id() % 4 * 16, row, rows);
    if constexpr (Config::capped) {
      softmax.weights(s, weights, rows);
    } else {
      copy(weights, s);
    }
    shared.ds[at.stage][0].store(s);
  }
  // ds from dp.
  KITTENS_DEVICE void differentiate(weights_tile& ds, scores& dp, const row_pair* rows) {
    shared.ds_ring.wait_full(at);
    softmax.gradient(dp, shared.ds[at.stage][0], rows);
    copy(ds, dp);
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void store_tile() {
    arch::named_barrier_sync(kBarrier, 128 * Config::consumers);  // both have read k and v
    auto& place = choose(shared.k, shared.v)[0][0];
    rt<T, 16, kColumns> result;
    if constexpr (kGradients) mul(sum, sum, p.scale);
    copy(result, sum);
    warpgroup::store(place, result);
    warpgroup::sync(kBarrier + 1 + W);
    if (arch::thread_id() % 128 != 0) return;
    tma::store_async(choose(p.dk, p.dv), place, p.k_origin(tile, p.sequences.keys),
                     tile.n * Config::keys, tile.key_head);
    tma::store_commit_group();
    tma::store_async_read_wait<0>();
    arrive(shared.kv_ring.empty[0]);
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
