// attention, backward: a consumer where the head dimension is above 128. Both consumers have the
// same 64 keys: of dk, dv and dq each has one half of the columns, of s and dp one half of the
// block's rows. So p and ds pass through shared memory. (attention_backward.cuh)
#pragma once

#include "kernels/attention/attention_backward_dq.cuh"
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
      zero(dk);
      zero(dv);
      query_blocks_walk<Config> walk(p, tile);
      if (walk.left > 0) {
        scores s, dp;
        issue_scores(s, dp);
#pragma unroll 1
        for (; walk.left > 1; walk.next()) step<false>(s, dp, walk);
        step<true>(s, dp, walk);
      }
      store_tile();
      kv_at.advance();
    }
  }

 private:
  using T = typename Config::type;
  static constexpr int kRows = Config::rows / 2, kColumns = Config::head_dim / 2;
  static_assert(kColumns == 128 && Config::kv_stages == 1);
  static constexpr int kBarrier = 1, kThreads = 128 * Config::consumers;
  using scores = rt_fl<16, kRows>;  // [keys, rows]: s and p, dp and ds
  const attention_backward_arguments<Config>& p;
  attention_backward_shared<Config>& shared;
  const attention_backward_softmax<Config::rows, Config::capped> softmax;
  attention_backward_tile tile;
  cursor<Config::kv_stages> kv_at;
  cursor<Config::stages> at;  // of the block whose scores are computed next
  cursor<2> ds_at;
  rt_fl<16, kColumns> dk, dv;

  // Some columns of a tile, from a multiple of 64 on.
  template <int Columns, class Tile>
  KITTENS_DEVICE static auto& columns_of(Tile& tile, int first) {
    using part = std::conditional_t<std::is_const_v<Tile>, const st<T, Tile::rows, Columns>,
                                    st<T, Tile::rows, Columns>>;
    return reinterpret_cast<part&>(tile.data[first / Tile::chunk_cols * Tile::chunk_elements]);
  }

  KITTENS_DEVICE void issue_scores(scores& s, scores& dp) {
    shared.row_ring.wait_full(at);
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.k[0][0], rows_of<kRows>(shared.q[at.stage], W * kRows));
    warpgroup::mm_ABt(dp, shared.v[0][0], rows_of<kRows>(shared.d_o[at.stage], W * kRows));
    warpgroup::mma_commit_group();
  }

  // A block whose scores are under way. Issues those of the next one, if it is not the Last.
  template <bool Last>
  KITTENS_DEVICE void step(scores& s, scores& dp, const query_blocks_walk<Config>& walk) {
    const cursor<Config::stages> here = at;
    at.advance();
    warpgroup::mma_async_wait<0>(s, dp);
    const auto* const rows = shared.row_block[here.stage].pairs + W * kRows / 2;
    softmax.softmax(s, tile, tile.n * Config::keys + arch::warp_id() % 4 * 16,
                    walk.m * Config::rows + W * kRows, rows);
    softmax.gradient(dp, s, rows);
    const auto dq_rows =
        attention_dq_rows::load_shared(shared.dq_factors[here.stage] + attention_dq_rows::place(0));
    auto& [weights, ds] = shared.ds[ds_at.stage];
    store_rows(weights, s);
    store_rows(ds, dp);
    arch::fence_async_proxy();
    arch::named_barrier_sync(kBarrier, kThreads);
    rt_fl<16, 64> left_dq, right_dq;  // of its columns
    warpgroup::mma_fence(dk, dv);
    warpgroup::mma_AB(dv, weights, columns_of<kColumns>(shared.d_o[here.stage], W * kColumns));
    warpgroup::mma_AB(dk, ds, columns_of<kColumns>(shared.q[here.stage], W * kColumns));
    warpgroup::mm_AtB(left_dq, ds, columns_of<64>(shared.k[0][0], W * kColumns));
    warpgroup::mma_commit_group();
    warpgroup::mma_fence();
    warpgroup::mm_AtB(right_dq, ds, columns_of<64>(shared.k[0][0], W * kColumns + 64));
    warpgroup::mma_commit_group();
    ds_at.advance();
    warpgroup::mma_async_wait<1>(dk, dv, left_dq);
    // All lanes have read the rows' numbers: they have met at the barrier.
    if (arch::lane_id() == 0) shared.row_ring.release_after_mma(here);
    add_dq(left_dq, dq_rows, walk.block, 0);
    if constexpr (!Last) issue_scores(s, dp);
    warpgroup::mma_async_wait<Last ? 0 : 1>(right_dq);
    add_dq(right_dq, dq_rows, walk.block, 1);
  }
  KITTENS_DEVICE void add_dq(const rt_fl<16, 64>& dq, const attention_dq_rows& rows, int64_t block,
                             int half) {
    const int64_t part = block * Config::parts + W * (Config::parts / 2) + half;
    rows.add(p.dq[part].pairs[arch::warp_id() % 4], dq);
    if (rows.is_checked()) {
      float* const factors = p.dq_factors + block * Config::rows;
      attention_dq_rows::mark_not_finite(factors + attention_dq_rows::place(0), dq);
    }
  }

  // This warp's keys and this consumer's rows of a tile [keys, rows].
  KITTENS_DEVICE static void store_rows(Config::ds_tile& to, const scores& from) {
    const int lane = arch::lane_id();
    const int key = arch::warp_id() % 4 * 16 + lane % 16, row = W * kRows + lane / 16 * 8;
    rt<T, 16, kRows> rounded;
    copy(rounded, from);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const uint32_t words[4] = {rounded.data[0][4 * i], rounded.data[0][4 * i + 1],
                                 rounded.data[0][4 * i + 2], rounded.data[0][4 * i + 3]};
      arch::store_matrix<false>(&to(key, row + i * 16), words);
    }
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void store_tile() {
    arch::named_barrier_sync(kBarrier, kThreads);  // both have read k and v
    rt<T, 16, kColumns> result;
    copy(result, dv);
    warpgroup::store(columns_of<kColumns>(shared.v[0][0], W * kColumns), result);
    mul(dk, dk, p.dk_scale);
    copy(result, dk);
    warpgroup::store(columns_of<kColumns>(shared.k[0][0], W * kColumns), result);
    arch::named_barrier_sync(kBarrier, kThreads);
    if (arch::thread_id() % 128 != 0) return;
    if constexpr (W == 0) {
      const sequence_origin origin = p.k_origin(tile, p.sequences.keys);
      tma::store_async(p.dv, shared.v[0][0], origin, tile.n * Config::keys, tile.key_head);
      tma::store_async(p.dk, shared.k[0][0], origin, tile.n * Config::keys, tile.key_head);
      tma::store_commit_group();
      tma::store_async_read_wait<0>();
    }
    shared.kv_ring.release_after_mma(kv_at);
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
