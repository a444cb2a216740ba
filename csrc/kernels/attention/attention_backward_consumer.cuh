// attention, backward: a consumer. It has 64 keys of a tile. (attention_backward.cuh)
#pragma once

#include <algorithm>

#include "kernels/attention/attention_backward_add_dq.cuh"
#include "kernels/attention/attention_backward_softmax.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// Number: an int, or a constant, which leaves no address of its own in registers.
template <class Config, class Number>
class attention_backward_consumer {
 public:
  KITTENS_DEVICE attention_backward_consumer(const attention_backward_arguments<Config>& p,
                                             attention_backward_shared<Config>& shared,
                                             Number number)
      : p(p), shared(shared), softmax{p}, number(number) {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    for (;;) {
      shared.kv_ring.wait_full(kv_at);
      tile = shared.read_tile(kv_stage());
      if (tile.n == attention_backward_tile::kEnd) break;
      zero(dk);
      zero(dv);
      query_blocks_walk<Config> walk(p, tile);
      if constexpr (!Config::adds_dq) {
#pragma unroll 1
        for (; walk.left > 0; walk.next()) {
          step<true>(walk);
          release_stored();
        }
        release_stored();  // of a tile that nobody sees
      } else if (walk.left > 0) {
        step<true>(walk);
        release_stored();
        walk.next();
#pragma unroll 1
        for (; walk.left > 0; walk.next()) step<false>(walk);
        finish();
      } else {
        release_stored();
      }
      store_tile();
      if constexpr (Config::kv_stages == 1) release_stored();
      kv_at.advance();
    }
    release_stored();  // the block's shared memory must outlast what is read of it
  }

 private:
  using T = typename Config::type;
  static constexpr int kBarrier = 1;  // one a consumer, and one of all
  const attention_backward_arguments<Config>& p;
  attention_backward_shared<Config>& shared;
  const attention_backward_softmax<Config::rows, Config::capped> softmax;
  const Number number;  // of the consumers, this warpgroup's
  attention_backward_tile tile;
  cursor<Config::kv_stages> kv_at;
  cursor<Config::stages> at;
  cursor<Config::ds_stages> ds_at, dq_at;
  int64_t dq_block = 0;  // whose ds is in shared memory
  attention_dq_rows dq_rows;
  static constexpr int kNone = -1;
  int stored = kNone;  // of the thread that signals: the stage that release_stored gives back

  rt_fl<16, Config::head_dim> dk;
  rt_fl<16, Config::value_dim> dv;
  // [keys, rows]: s and p, dp and ds
  using scores = rt_fl<16, Config::rows>;
  using weights_tile = rt<T, 16, Config::rows>;

  // A single stage's number takes no register.
  KITTENS_DEVICE int kv_stage() const { return Config::kv_stages == 1 ? 0 : kv_at.stage; }
  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }

  // Of dq, a consumer has 64 rows, or up to 64 of the columns.
  static constexpr int dq_columns() {
    if constexpr (Config::rows == 64) {
      return std::min(64, Config::head_dim - 64 * Number::value);
    } else {
      return 64;
    }
  }
  using dq_part = rt_fl<16, dq_columns()>;

  // The first Columns of a tile's chunk i.
  template <int Columns, class Tile>
  KITTENS_DEVICE static const auto& chunk_of(const Tile& tile, int i) {
    using chunk = st<T, Tile::rows, Columns, typename Config::layout>;
    static_assert(chunk::chunk_elements == Tile::chunk_elements);
    return reinterpret_cast<const chunk&>(tile.data[i * Tile::chunk_elements]);
  }

  // This consumer's part of dq = ds k of the block before.
  KITTENS_DEVICE void issue_dq(dq_part& dq) {
    shared.ds_ring.wait_full(dq_at);
    warpgroup::mma_fence();
    const auto& all = shared.ds[dq_at.stage];
#pragma unroll
    for (int of = 0; of < Config::consumers; ++of) {
      const auto& ds = chunk_of<64>(all[of], Config::rows == 64 ? 0 : number);
      const auto& k =
          chunk_of<dq_part::cols>(shared.k[kv_stage()][of], Config::rows == 64 ? number : 0);
      if (of == 0) {
        warpgroup::mm_AtB(dq, ds, k);
      } else {
        warpgroup::mma_AtB(dq, ds, k);
      }
    }
    warpgroup::mma_commit_group();
  }
  // After it has been waited for.
  KITTENS_DEVICE void store_dq(const dq_part& dq) {
    if (signals()) shared.ds_ring.release_after_mma(dq_at);
    dq_at.advance();
    dq_rows.add(p.dq[dq_block * Config::parts + number].pairs[arch::warp_id() % 4], dq);
    if (dq_rows.is_checked()) {
      attention_dq_rows::mark_not_finite(p.dq_factors + dq_block * Config::rows + dq_place(), dq);
    }
  }
  // Among a block's factors, those of this consumer's part.
  KITTENS_DEVICE int dq_place() const {
    return attention_dq_rows::place(Config::rows == 64 ? 0 : number * 64);
  }

  // A block of queries, and dq of the one before, if it is not the First.
  template <bool First>
  KITTENS_DEVICE void step(const query_blocks_walk<Config>& walk) {
    scores s, dp;
    weights_tile weights, ds;
    dq_part dq;
    shared.row_ring.wait_full(at);
    const auto& rows = shared.row_block[at.stage];
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.k[kv_stage()][number], shared.q[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_fence();
    warpgroup::mm_ABt(dp, shared.v[kv_stage()][number], shared.d_o[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<1>(s);
    softmax.softmax(s, tile, tile.n * Config::keys + number * 64 + arch::warp_id() % 4 * 16,
                    walk.m * Config::rows, rows.pairs);
    warpgroup::mma_async_wait<0>(dp);
    softmax.gradient(dp, s, rows.pairs);
    copy(weights, s);
    copy(ds, dp);
    if constexpr (Config::adds_dq) {
      // On its way while the products are issued: only then does this warp wait for it, to show it.
      shared.ds_ring.wait_empty(ds_at);
      warpgroup::store_unfenced(shared.ds[ds_at.stage][number], ds);
    }
    if constexpr (!First) issue_dq(dq);
    warpgroup::mma_fence(weights, ds, dk, dv);
    warpgroup::mma_AB(dv, weights, shared.d_o[at.stage]);
    warpgroup::mma_AB(dk, ds, shared.q[at.stage]);
    warpgroup::mma_commit_group();
    if constexpr (Config::adds_dq) {
      const auto next_dq_rows =
          attention_dq_rows::load_shared(shared.dq_factors[at.stage] + dq_place());
      show_ds();
      if constexpr (!First) {
        warpgroup::mma_async_wait<1>(dq);
        store_dq(dq);
      }
      dq_rows = next_dq_rows;
      dq_block = walk.block;
    } else {
      arch::fence_async_proxy();
      arch::sync_warp();
    }
    warpgroup::mma_async_wait<0>(dk, dv);
    // Each lane has fenced since it read the rows' numbers, and the warp has met.
    if (arch::lane_id() == 0) shared.row_ring.release_after_mma(at);
    at.advance();
  }

  KITTENS_DEVICE void show_ds() {
    arch::fence_async_proxy();
    arch::sync_warp();
    if (arch::lane_id() == 0) arrive(shared.ds_ring.full[ds_at.stage]);
    ds_at.advance();
  }

  KITTENS_DEVICE void finish() {
    dq_part dq;
    issue_dq(dq);
    warpgroup::mma_async_wait<0>(dq);
    store_dq(dq);
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void store_tile() {
    if constexpr (Config::adds_dq) {
      arch::named_barrier_sync(kBarrier, 128 * Config::consumers);  // both have read k
    } else {
      // All warps have read k and v, of which a product reads each warp's rows; but no more than
      // its own, PTX does not say.
      warpgroup::sync(kBarrier + 1 + number);
    }
    auto& k = shared.k[kv_stage()][number];
    auto& v = shared.v[kv_stage()][number];
    rt<T, 16, Config::value_dim> dv_result;
    copy(dv_result, dv);
    warpgroup::store(v, dv_result);
    mul(dk, dk, p.scale);
    rt<T, 16, Config::head_dim> dk_result;
    copy(dk_result, dk);
    warpgroup::store(k, dk_result);
    warpgroup::sync(kBarrier + 1 + number);
    if (signals()) {
      const sequence_origin origin = p.k_origin(tile, p.sequences.keys);
      const int row = tile.n * Config::keys + number * 64;
      tma::store_async(p.dv, v, origin, row, tile.key_head);
      tma::store_async(p.dk, k, origin, row, tile.key_head);
      tma::store_commit_group();
      stored = kv_stage();
    }
  }
  // The stage whose dk and dv are on their way out: where there are two, a step of the next tile
  // later, so that nothing waits for them.
  KITTENS_DEVICE void release_stored() {
    if (stored == kNone) return;
    tma::store_async_read_wait<0>();
    arrive(shared.kv_ring.empty[stored]);
    stored = kNone;
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
