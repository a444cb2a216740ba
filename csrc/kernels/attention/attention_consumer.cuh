// attention, forward: a consumer. It computes 64 rows of a tile. (attention_forward.cuh)
#pragma once

#include "kernels/attention/attention_softmax.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
class attention_consumer {
 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE attention_consumer(const attention_forward_arguments<Config>& p,
                                    attention_forward_shared<Config>& shared, int w)
      : p(p), w(w), softmax{p.scale, p.scale_log2}, shared(shared) {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    uint32_t overflow_bits = 0;  // two bits, of this lane's rows, for each of the last items
    order::start(w);
    for (;; ++number) {
      shared.q_ring.wait_full(q_at);
      tile = read();
      if (tile.m == attention_item::kEnd) break;
      const int again = detail::uniform(shared.items[number % 2].again);
      const key_blocks all = key_blocks::of<Config>(p, tile, tile.m * Config::rows, Config::rows);
      key_blocks mine = key_blocks::of<Config>(p, tile, warpgroup_row(), 64);
      if (mine.first == mine.end) mine.first = mine.end = all.end;
      if (again > 0) mine.end_fixed = mine.first_fixed = mine.first;
      const bool was_fixed = Config::fixed_reference && mine.first < mine.end_fixed;
      zero(o);
      softmax.start();
      for (int j = all.end; j > mine.end; --j) skip_block();
      if (mine.first < mine.end) {
        attend(mine);
      } else {
        if (Config::q_stages > 1 && number > 0) release_q();
        // All take equally many turns: here the tile's last block takes none.
        if (kFirstIsFree && all.first < all.end) {
          skip_block([&] { warpgroup::sync(kBarrier + w); });
          --mine.first;
        }
      }
      for (int j = mine.first; j > all.first; --j) skip_block();
      const uint32_t rows = again == 0 ? 0 : overflow_bits >> 2 * (again - 1) & 3;
      if constexpr (Config::fixed_reference) {
        overflow_bits = overflow_bits << 2 | check_overflow(was_fixed);
      }
      if (again == 0) {
        store_tile(was_fixed);
      } else {
        store_rows(rows);
      }
      if constexpr (Config::q_stages == 1) release_q();
      q_at.advance();
    }
    order::finish(w);
    if (signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using scores = rt_fl<16, Config::keys>;
  using half_scores =
      std::conditional_t<Config::fixed_reference, rt_fl<16, Config::half_keys>, scores>;
  using output = rt_fl<16, Config::value_dim>;
  using column = typename attention_softmax<Config>::column;
  using order = ordered_barrier<Config::consumers>;
  // One of three consumers takes no turn for its first scores of a tile: it need not wait for those
  // that are still at the last one (benchmarks/attention.md). Of two, it is no faster.
  static constexpr bool kFirstIsFree = Config::consumers == 3;
  static constexpr int kBarrier = order::kFirstBarrier + order::kBarriers;  // one a consumer
  const attention_forward_arguments<Config>& p;
  const int w;
  attention_tile tile;
  typename Config::o_accumulator o;
  attention_softmax<Config> softmax;
  attention_forward_shared<Config>& shared;
  int number = 0;  // of the item
  cursor<Config::q_stages> q_at;
  cursor<Config::stages> k_at, v_at;
  scores s;
  rt<T, 16, Config::keys> weights;  // s as the second product takes it

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }

  // The first of this warpgroup's rows in the sequence, and of this warp's sixteen.
  KITTENS_DEVICE int warpgroup_row() const { return tile.m * Config::rows + w * 64; }
  KITTENS_DEVICE int warp_row() const { return warpgroup_row() + arch::warp_id() % 4 * 16; }
  KITTENS_DEVICE attention_mask mask() const {
    return {warp_row() + tile.keys - tile.rows, tile.keys, p.left, p.right};
  }

  // s = tanh(s · scale / softcap).
  template <class S>
  KITTENS_DEVICE void cap(S& s) const {
    if constexpr (Config::capped) p.softcap.cap(s);
  }

  // S: scores, or half_scores for half a block, its keys from `first` on.
  template <class S>
  KITTENS_DEVICE void issue_qk(S& s, int first) {
    warpgroup::mma_fence();
    if constexpr (std::same_as<S, scores>) {
      warpgroup::mm_ABt(s, shared.q[q_at.stage][w], shared.k[k_at.stage]);
    } else {
      warpgroup::mm_ABt(s, shared.q[q_at.stage][w], rows_of<S::cols>(shared.k[k_at.stage], first));
    }
    warpgroup::mma_commit_group();
  }
  template <class Weights, class V>
  KITTENS_DEVICE void issue_pv(const Weights& weights, const V& v) {
    warpgroup::mma_fence();
    if constexpr (Config::fixed_reference) {
      warpgroup::mma_AB_row_sums(o, weights, v);
    } else {
      warpgroup::mma_AB(o, weights, v);
    }
    warpgroup::mma_commit_group();
  }
  // Gives back the stage that the next tile takes: the last tile's, or this one's where there is
  // but one. What was stored from there has been read by now, or nearly so.
  KITTENS_DEVICE void release_q() {
    if (signals()) {
      tma::store_async_read_wait<0>();
      arrive(shared.q_ring.empty[(q_at.stage + 1) % Config::q_stages]);
    }
  }
  KITTENS_DEVICE void release_k() {
    if (signals()) shared.k_ring.release_after_mma(k_at);
    k_at.advance();
  }
  KITTENS_DEVICE void release_v() {
    if (signals()) shared.v_ring.release_after_mma(v_at);
    v_at.advance();
  }

  // The same in all lanes, which the compiler must know: else what it decides, down to the stage in
  // the products' descriptors, would be computed lane by lane.
  KITTENS_DEVICE attention_tile read() const {
    const attention_tile& t = shared.items[number % 2].tile;
    return {detail::uniform(t.m),       detail::uniform(t.head),    detail::uniform(t.batch),
            detail::uniform(t.q_start), detail::uniform(t.k_start), detail::uniform(t.rows),
            detail::uniform(t.keys)};
  }

  // A block that the tile's other rows see, and these do not. All have waited for it when one
  // thread releases it, which is what `meet` sees to: who came later would wait for the stage's
  // next block.
  template <class Meet>
  KITTENS_DEVICE void skip_block(Meet meet) {
    shared.k_ring.wait_full(k_at);
    shared.v_ring.wait_full(v_at);
    meet();
    release_k();
    release_v();
  }
  // And where the others take their turn.
  KITTENS_DEVICE void skip_block() {
    skip_block([&] {
      order::wait(w);
      order::arrive(w);
    });
  }

  // The two products of a step: s = q kᵀ of this block and o += p v of the one before. Waits for s
  // alone.
  template <class S>
  KITTENS_DEVICE void issue_qk_and_pv(S& s, int first) {
    shared.k_ring.wait_full(k_at);
    order::wait(w);
    issue_qk(s, first);
    shared.v_ring.wait_full(v_at);
    issue_pv(weights, shared.v[v_at.stage]);
    order::arrive(w);
    warpgroup::mma_async_wait<1>();
    release_k();
    cap(s);
  }

  // The first block of these rows, which sets the reference.
  template <class S>
  KITTENS_DEVICE void first_step(S& s, int j) {
    column unused;
    shared.k_ring.wait_full(k_at);
    if constexpr (!kFirstIsFree) order::wait(w);
    issue_qk(s, 0);
    if constexpr (!kFirstIsFree) order::arrive(w);
    warpgroup::mma_async_wait<0>();
    release_k();
    cap(s);
    mask().hide(s, j * Config::keys);
    softmax.online(s, unused);
    if constexpr (std::same_as<S, scores>) {
      copy(weights, s);
    } else {
      zero(weights);
      rt<T, 16, S::cols> half;
      copy(half, s);
#pragma unroll
      for (int i = 0; i < S::cols / 4; ++i) weights.data[0][i] = half.data[0][i];
    }
  }

  KITTENS_DEVICE void online_step(int j) {
    issue_qk_and_pv(s, 0);
    mask().hide(s, j * Config::keys);
    column correction;
    softmax.online(s, correction);
    warpgroup::mma_async_wait<0>();
    release_v();
    copy(weights, s);
    mul_row(o, o, correction);
  }

  // Leaves p in s. `hide` masks it.
  template <class S, class Hide>
  KITTENS_DEVICE void fixed_step(S& s, int first, Hide hide) {
    issue_qk_and_pv(s, first);
    hide(s);
    column sum;
    softmax.fixed(s, sum);
    warpgroup::mma_async_wait<0>();
    release_v();
    softmax.rescale_if_large(s, o, sum);
  }
  KITTENS_DEVICE void fixed_step() {
    fixed_step(s, 0, [](scores&) {});
    copy(weights, s);
  }
  // A block, or its second half, whose left keys some rows do not see, once all have a reference.
  template <class S>
  KITTENS_DEVICE void left_step(S& s, int j) {
    const int first = Config::keys - S::cols, first_key = j * Config::keys + first;
    fixed_step(s, first, [&](S& s) { mask().hide_left(s, first_key); });
  }

  KITTENS_DEVICE void attend(const key_blocks& blocks) {
    int j = blocks.end - 1;
    if (Config::fixed_reference && blocks.low_half) {
      half_scores low;
      first_step(low, j);
    } else {
      first_step(s, j);
    }
    if (Config::q_stages > 1 && number > 0) release_q();
    --j;
#pragma unroll 1
    for (; j >= blocks.end_fixed; --j) online_step(j);
    if constexpr (Config::fixed_reference) {
      if (blocks.first < blocks.end_fixed) softmax.fix_reference();
#pragma unroll 1
      for (; j >= blocks.first_fixed; --j) fixed_step();
#pragma unroll 1
      for (; j >= blocks.first + blocks.high_half; --j) {
        left_step(s, j);
        copy(weights, s);
      }
      if (j >= blocks.first) {
        half_scores high;
        left_step(high, j);
        rt<T, 16, Config::half_keys> half;
        copy(half, high);
        return last_pv(half, rows_of<Config::half_keys>(shared.v[v_at.stage], Config::half_keys));
      }
    }
    last_pv(weights, shared.v[v_at.stage]);
  }

  template <class Weights, class V>
  KITTENS_DEVICE void last_pv(const Weights& weights, const V& v) {
    shared.v_ring.wait_full(v_at);
    issue_pv(weights, v);
    if constexpr (Config::sums) finish_row_sum(softmax.l);
    warpgroup::mma_async_wait<0>();
    release_v();
  }

  // Whether the lane's rows overflowed, or are far, as two bits; tells the producer of the warp's.
  KITTENS_DEVICE uint32_t check_overflow(bool was_fixed) {
    const uint32_t rows = was_fixed ? softmax.overflowed(o) : 0;
    const bool any = arch::vote_any(rows != 0);
    if (arch::lane_id() == 0) {
      shared.overflowed[number % 2][w * 4 + arch::warp_id() % 4] = any;
      arrive(shared.overflow_checked[number % 2]);
    }
    return rows;
  }

  KITTENS_DEVICE void finish(output& result, bool was_fixed) {
    softmax.finish(result, o, p.sinks, tile.head, was_fixed);
  }

  KITTENS_DEVICE void store_tile(bool was_fixed) {
    output result;
    finish(result, was_fixed);
    // The last product with the queries is done.
    auto& staging = reinterpret_cast<typename Config::o_tile&>(shared.q[q_at.stage][w]);
    warpgroup::sync(kBarrier + w);
    warpgroup::store(staging, result);
    warpgroup::sync(kBarrier + w);
    if (signals()) {
      tma::store_async(p.o, staging, p.q_origin(tile), warpgroup_row(), tile.head);
      tma::store_commit_group();
    }
    store_lse(3);
  }

  // The lane's rows whose bits are set, after the tile's first store has landed.
  KITTENS_DEVICE void store_rows(uint32_t rows) {
    output result;
    finish(result, /*was_fixed=*/false);
    if (signals()) tma::store_async_wait<0>();
    warpgroup::sync(kBarrier + w);
    const int lane = arch::lane_id();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row() + half * 8 + lane / 4;
      if ((rows >> half & 1) == 0 || row >= tile.rows) continue;
      T* const to = p.o_rows.row({tile.batch, tile.head, tile.q_start + row, 0});
#pragma unroll
      for (int i = half; i < Config::value_dim / 4; i += 2) {
        const int column = output::along(i / 4, i % 4, lane);
        if (column >= p.o_rows.cols) continue;
        arch::store_global(reinterpret_cast<uint32_t*>(to + column),
                           pack<T>(result.data[0][2 * i], result.data[0][2 * i + 1]));
      }
    }
    store_lse(rows);
  }

  KITTENS_DEVICE void store_lse(uint32_t rows) {
    const int lane = arch::lane_id();
    if (!Config::sums || p.lse.data == nullptr || lane % 4 != 0) return;
    float* const to = p.lse.row({tile.batch, tile.head, 0, 0}) + tile.q_start;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row() + half * 8 + lane / 4;
      if ((rows >> half & 1) != 0 && row < tile.rows) {
        arch::store_global(to + row, softmax.l.data[half].words[0]);
      }
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
