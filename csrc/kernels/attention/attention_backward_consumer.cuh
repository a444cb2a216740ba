// attention, backward: a consumer. It has 64 keys of a tile. (attention_backward.cuh)
#pragma once

#include <limits>

#include "kernels/attention/attention_backward_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// W: which of the consumers this warpgroup is. Known to the compiler, it leaves no address of its own
// in registers.
template <class Config, int W>
class attention_backward_consumer {
 public:
  KITTENS_DEVICE attention_backward_consumer(const attention_backward_arguments<Config>& p,
                                             attention_backward_shared<Config>& shared)
      : p(p), shared(shared) {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    for (;;) {
      shared.kv_ring.wait_full(kv_at);
      tile = read();
      if (tile.n == attention_backward_tile::kEnd) break;
      zero(dk);
      zero(dv);
      const query_blocks blocks = query_blocks::of(p, tile);
      const int per_head = blocks.end - blocks.first;
      if (per_head > 0) {
        const int64_t first = p.block_of(tile.batch, tile.key_head * p.heads_per_key, blocks.first);
        int64_t block = first;
        step<true>(blocks.first, block);
        int m = blocks.first + 1;
#pragma unroll 1
        for (int left = per_head * p.heads_per_key - 1; left > 0; --left) {
          ++block;
          if (m == blocks.end) {
            m = blocks.first;
            block += p.row_blocks_of_head - per_head;
          }
          step<false>(m++, block);
        }
        finish();
      }
      store_tile();
      kv_at.advance();
    }
    if (arch::lane_id() == 0) tma::store_async_wait<0>();
  }

 private:
  using T = typename Config::type;
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  static constexpr int kBarrier = 1;  // one a consumer, and one of all
  const attention_backward_arguments<Config>& p;
  attention_backward_shared<Config>& shared;
  attention_backward_tile tile;
  cursor<1> kv_at;
  cursor<Config::stages> at;
  cursor<Config::ds_stages> ds_at, dq_at;
  attention_dq_part<int>* to = nullptr;  // where the dq goes whose ds is in shared memory
  float factor[2];  // that takes the lane's two rows of it to integers

  rt_fl<16, Config::head_dim> dk, dv;
  // [keys, rows]: s and p, dp and ds
  using scores = rt_fl<16, Config::rows>;
  using weights_tile = rt<T, 16, Config::rows>;

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }
  KITTENS_DEVICE int warp_in_group() const { return arch::warp_id() % 4; }

  KITTENS_DEVICE attention_backward_tile read() const {
    const attention_backward_tile& t = shared.tile;
    return {detail::uniform(t.n), detail::uniform(t.key_head), detail::uniform(t.batch)};
  }

  // Hides what a row does not see, and the keys that do not exist.
  KITTENS_DEVICE void mask(scores& s, int m) {
    const int key = tile.n * Config::keys + W * 64 + warp_in_group() * 16;
    const int row = m * Config::rows, diagonal = key - row - (p.keys - p.rows);
    lower_fill(s, s, p.keys - key, kHidden);
    triu(s, s, diagonal - p.right, kHidden);
    tril(s, s, diagonal + p.left, kHidden);
  }

  // s becomes p, dp becomes ds.
  KITTENS_DEVICE void softmax_of(scores& s, const attention_row_block<Config::rows>& rows) {
    const int lane = arch::lane_id();
#pragma unroll
    for (int c = 0; c < Config::rows / 8; ++c) {  // eight rows, two of this lane
      const float4 lse_and_delta =
          *reinterpret_cast<const float4*>(&rows.pairs[c * 4 + lane % 4]);
      const float lse[2] = {lse_and_delta.x, lse_and_delta.y};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s.data[0][4 * c + i];
        x = arch::exp2_approx(fmaf(x, p.scale_log2, -lse[i % 2]));
      }
    }
  }
  KITTENS_DEVICE void gradient_of(scores& dp, const scores& s, const attention_row_block<Config::rows>& rows) {
    const int lane = arch::lane_id();
#pragma unroll
    for (int c = 0; c < Config::rows / 8; ++c) {
      const float4 lse_and_delta =
          *reinterpret_cast<const float4*>(&rows.pairs[c * 4 + lane % 4]);
      const float delta[2] = {lse_and_delta.z, lse_and_delta.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = dp.data[0][4 * c + i];
        x = s.data[0][4 * c + i] * (x - delta[i % 2]);
      }
    }
  }

  template <class Tile>
  using chunk = st<T, Tile::rows, Tile::chunk_cols>;
  template <class Tile>
  KITTENS_DEVICE static const chunk<Tile>& chunk_of(const Tile& tile, int i) {
    return reinterpret_cast<const chunk<Tile>&>(tile.data[i * Tile::chunk_elements]);
  }

  // This consumer's part of dq = ds k of the block before.
  KITTENS_DEVICE void issue_dq(rt_fl<16, 64>& dq) {
    shared.ds_ring.wait_full(dq_at);
    warpgroup::mma_fence();
    const auto& all = shared.ds[dq_at.stage];
#pragma unroll
    for (int of = 0; of < Config::consumers; ++of) {
      const auto& ds = chunk_of(all[of], Config::rows == 64 ? 0 : W);
      const auto& k = chunk_of(shared.k[of], Config::rows == 64 ? W : 0);
      if (of == 0) {
        warpgroup::mm_AtB(dq, ds, k);
      } else {
        warpgroup::mma_AtB(dq, ds, k);
      }
    }
    warpgroup::mma_commit_group();
  }
  // No integer says that a sum is not finite: the row's factor becomes NaN.
  KITTENS_DEVICE void check_dq(const rt_fl<16, 64>& dq) const {
    bool is_finite[2] = {true, true};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      is_finite[i / 2 % 2] &= fabsf(dq.data[0][i]) <= std::numeric_limits<float>::max();
    }
    const int64_t block = (to - p.dq) / Config::parts;
    const int row = (Config::rows == 64 ? 0 : W * 64) + warp_in_group() * 16 + arch::lane_id() / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (is_finite[r]) continue;
      arch::store_global(p.dq_factors + block * Config::rows + row + r * 8,
                         std::numeric_limits<float>::quiet_NaN());
    }
  }

  // After it has been waited for.
  KITTENS_DEVICE void store_dq(const rt_fl<16, 64>& dq) {
    if (factor[0] < 0.0f || factor[1] < 0.0f) check_dq(dq);
    if (signals()) shared.ds_ring.release_after_mma(dq_at);
    dq_at.advance();
    const int lane = arch::lane_id(), warp = warp_in_group();
#ifdef A2
    return;
#endif
    auto& staging = shared.dq[W].numbers[warp];
#if !defined(A13) && !defined(A14)
    if (lane == 0) tma::store_async_read_wait<0>();
    arch::sync_warp();
#endif
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      int4 numbers;
      numbers.x = arch::round_to_int(dq.data[0][4 * i] * factor[0]);
      numbers.y = arch::round_to_int(dq.data[0][4 * i + 1] * factor[0]);
      numbers.z = arch::round_to_int(dq.data[0][4 * i + 2] * factor[1]);
      numbers.w = arch::round_to_int(dq.data[0][4 * i + 3] * factor[1]);
#ifdef A13
      asm volatile("" :: "r"(numbers.x), "r"(numbers.y), "r"(numbers.z), "r"(numbers.w));
#else
      *reinterpret_cast<int4*>(staging[i][lane]) = numbers;
#endif
    }
#if defined(A13) || defined(A14)
    return;
#endif
    arch::fence_async_proxy();
    arch::sync_warp();
    if (lane == 0) {
      arch::bulk_store_add(&to->numbers[warp][0][0][0], &staging[0][0][0], sizeof(staging));
      tma::store_commit_group();
    }
  }

  // Block m of queries, and dq of the one before, if it is not the First.
  template <bool First>
  KITTENS_DEVICE void step(int m, int64_t block) {
    scores s, dp;
    weights_tile weights, ds;
    rt_fl<16, 64> dq;
    shared.row_ring.wait_full(at);
    const auto& rows = shared.row_block[at.stage];
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.k[W], shared.q[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_fence();
    warpgroup::mm_ABt(dp, shared.v[W], shared.d_o[at.stage]);
    warpgroup::mma_commit_group();
    float next_factor[2];
    {
      const int row = (Config::rows == 64 ? 0 : W * 64) + warp_in_group() * 16 + arch::lane_id() / 4;
      const float* const factors = p.dq_factors + block * Config::rows + row;
      next_factor[0] = arch::load_global(factors);
      next_factor[1] = arch::load_global(factors + 8);
    }
    warpgroup::mma_async_wait<1>(s);
#ifndef A11
    mask(s, m);
#endif
#ifndef A11
    softmax_of(s, rows);
#endif
    warpgroup::mma_async_wait<0>(dp);
#ifndef A11
    gradient_of(dp, s, rows);
#endif
    copy(weights, s);
    copy(ds, dp);
    if constexpr (!First) issue_dq(dq);
    warpgroup::mma_fence(weights, ds, dk, dv);
    warpgroup::mma_AB(dv, weights, shared.d_o[at.stage]);
    warpgroup::mma_AB(dk, ds, shared.q[at.stage]);
    warpgroup::mma_commit_group();
    store_ds(ds);
    if constexpr (!First) {
      warpgroup::mma_async_wait<1>(dq);
      store_dq(dq);
    }
    factor[0] = next_factor[0];
    factor[1] = next_factor[1];
    to = p.dq + block * Config::parts + W;
    warpgroup::mma_async_wait<0>(dk, dv);
    // Each lane has fenced since it read the rows' numbers, and the warp has met: store_ds.
    if (arch::lane_id() == 0) shared.row_ring.release_after_mma(at);
    at.advance();
  }

  KITTENS_DEVICE void store_ds(const weights_tile& ds) {
    shared.ds_ring.wait_empty(ds_at);
    warpgroup::store(shared.ds[ds_at.stage][W], ds);
    arch::sync_warp();
    if (arch::lane_id() == 0) arrive(shared.ds_ring.full[ds_at.stage]);
    ds_at.advance();
  }

  KITTENS_DEVICE void finish() {
    rt_fl<16, 64> dq;
    issue_dq(dq);
    warpgroup::mma_async_wait<0>(dq);
    store_dq(dq);
  }

  // dk takes the place of k, and dv that of v.
  KITTENS_DEVICE void store_tile() {
    arch::named_barrier_sync(kBarrier, 128 * Config::consumers);  // both have read k
    rt<T, 16, Config::head_dim> result;
    copy(result, dv);
    warpgroup::store(shared.v[W], result);
    mul(dk, dk, p.dk_scale);
    copy(result, dk);
    warpgroup::store(shared.k[W], result);
    warpgroup::sync(kBarrier + 1 + W);
    if (signals()) {
      const sequence_origin origin = sequence_origin::of(tile.batch);
      const int row = tile.n * Config::keys + W * 64;
      tma::store_async(p.dv, shared.v[W], origin, row, tile.key_head);
      tma::store_async(p.dk, shared.k[W], origin, row, tile.key_head);
      tma::store_commit_group();
      tma::store_async_read_wait<0>();
      shared.kv_ring.release_after_mma(kv_at);
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
