// attention, forward: a consumer. It computes 64 rows of a tile. (attention_forward.cuh)
#pragma once

#include <limits>

#include "kernels/attention/attention_tile.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

template <class Config>
class attention_consumer {
 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE attention_consumer(const attention_forward_tensors<Config>& p,
                                    attention_forward_shared<Config>& shared, int w)
      : p(p), shared(shared), w(w) {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    uint32_t failures = 0;  // two bits, of this lane's rows, for each of the last items
    turn::start(w);
    for (;; ++number) {
      shared.q_ring.wait_full(q_at);
      tile = read();
      if (tile.m == attention_item::kEnd) break;
      const int again = detail::uniform(shared.items[number % 2].again);
      const key_blocks all = key_blocks::of(p, tile, tile.m * Config::rows, Config::rows);
      key_blocks mine = key_blocks::of(p, tile, warpgroup_row(), 64);
      if (mine.first == mine.end) mine.first = mine.end = all.end;
      if (again > 0) mine.end_fast = mine.first_fast = mine.first;
      zero(o);
      zero(l);
      neg_infty(m);
      for (int j = all.end; j > mine.end; --j) pass_over();
      if (mine.first < mine.end) {
        attend(mine);
      } else if (Config::q_stages > 1 && number > 0) {
        release_q();
      }
      for (int j = mine.first; j > all.first; --j) pass_over();
      const uint32_t rows = again == 0 ? 0 : failures >> 2 * (again - 1) & 3;
      if constexpr (Config::fast) {
        failures = failures << 2 | judge(mine.first_fast < mine.end_fast);
      }
      if (again == 0) {
        store_tile();
      } else {
        store_rows(rows);
      }
      if constexpr (Config::q_stages == 1) release_q();
      q_at.advance();
    }
    turn::finish(w);
    if (signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using scores = rt_fl<16, Config::keys>;
  using column = typename scores::col_vec;  // one value per row
  using output = rt_fl<16, Config::head_dim>;
  using turn = turns<Config::consumers>;
  static constexpr int kBarrier = turn::kFirstBarrier + turn::kBarriers;  // one a consumer
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  // A row is rescaled when the sum of a lane's part of a block is above this, so that p fits fp16 …
  static constexpr float kLargeSum = 256.0f;
  // … or, of the whole row in bf16 alone, above this, long before floats overflow.
  static constexpr float kLargeRow = 0x1p60f;

  const attention_forward_tensors<Config>& p;
  attention_forward_shared<Config>& shared;
  const int w;
  int number = 0;  // of the item
  attention_tile tile;
  cursor<Config::q_stages> q_at;
  cursor<Config::stages> k_at, v_at;
  scores s;
  rt<T, 16, Config::keys> weights;  // s as the second product takes it
  typename Config::o_accumulator o;
  column m, l;  // reference of the exponents in units of log₂, and this lane's part of Σ p

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }
  // The first of this warpgroup's rows in the sequence, and of this warp's sixteen.
  KITTENS_DEVICE int warpgroup_row() const { return tile.m * Config::rows + w * 64; }
  KITTENS_DEVICE int warp_row() const { return warpgroup_row() + arch::warp_id() % 4 * 16; }

  KITTENS_DEVICE void issue_scores() {
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.q[q_at.stage][w], shared.k[k_at.stage]);
    warpgroup::mma_commit_group();
  }
  KITTENS_DEVICE void issue_output() {
    warpgroup::mma_fence();
    if constexpr (Config::fast) {
      warpgroup::mma_AB_row_sums(o, weights, shared.v[v_at.stage]);
    } else {
      warpgroup::mma_AB(o, weights, shared.v[v_at.stage]);
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
    if (signals()) shared.k_ring.release(k_at);
    k_at.advance();
  }
  KITTENS_DEVICE void release_v() {
    if (signals()) shared.v_ring.release(v_at);
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
  // thread releases it: who came later would wait for the stage's next block.
  KITTENS_DEVICE void pass_over() {
    shared.k_ring.wait_full(k_at);
    shared.v_ring.wait_full(v_at);
    turn::wait(w);
    turn::pass(w);
    release_k();
    release_v();
  }

  // s = tanh(s · scale / softcap). The approximation of tanh itself would lose half of bf16's bits.
  KITTENS_DEVICE void cap() {
    if constexpr (Config::capped) {
      const float c = p.cap * 2.885390082f;  // 2 log₂e: tanh x = 1 − 2 / (1 + exp 2x)
      map(
          [=](float x) {
            return 1.0f - 2.0f * arch::reciprocal_approx(1.0f + arch::exp2_approx(x * c));
          },
          s, s);
    }
  }
  // Hides the keys of block j that do not exist, or that this warp's rows do not see.
  KITTENS_DEVICE void mask(int j) {
    const int first_key = j * Config::keys;
    const int diagonal = warp_row() + tile.keys - tile.rows - first_key;
    right_fill(s, s, tile.keys - first_key, kHidden);
    tril(s, s, diagonal + p.right, kHidden);
    triu(s, s, diagonal - p.left, kHidden);
  }

  // s → p in place, m, l; `correction` is what o is to be multiplied with. A row that has seen no
  // key yet has m = −inf; its p is then exp2(−inf) = 0.
  KITTENS_DEVICE void careful_softmax(column& correction) {
    const float c = p.scale_log2;
    column top, reference;
    row_max(top, s);
    copy(correction, m);
    map([=](float x, float y) { return fmaxf(x, y * c); }, m, m, top);
    map([](float x) { return x == kHidden ? 0.0f : x; }, reference, m);
    map([](float x, float y) { return arch::exp2_approx(x - y); }, correction, correction,
        reference);
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, reference);
    mul(l, l, correction);
    partial_row_sum(l, s, l);
  }

  // The products of a step, until s is there.
  KITTENS_DEVICE void products() {
    shared.k_ring.wait_full(k_at);
    turn::wait(w);
    issue_scores();
    shared.v_ring.wait_full(v_at);
    issue_output();
    turn::pass(w);
    warpgroup::mma_async_wait<1>();
    release_k();
    cap();
  }

  KITTENS_DEVICE void careful_step(int j) {
    products();
    mask(j);
    column correction;
    careful_softmax(correction);
    warpgroup::mma_async_wait<0>();
    release_v();
    copy(weights, s);
    mul_row(o, o, correction);
  }

  template <bool Sums>
  KITTENS_DEVICE void fast_step() {
    products();
    const float c = p.scale_log2;
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, m);
    column sum;
    zero(sum);
    if constexpr (Sums) partial_row_sum(sum, s, sum);
    warpgroup::mma_async_wait<0>();
    release_v();
    if constexpr (!Sums) row_sums_of(sum, o);
    const float large = Sums ? kLargeSum : kLargeRow;
    column is_large;
    map([=](float x) { return x <= large ? 0.0f : 1.0f; }, is_large, sum);  // 1 for NaN
    if (arch::vote_any(is_large.data[0].words[0] + is_large.data[1].words[0] != 0.0f)) {
      rebase<Sums>(sum, is_large);
    }
    if constexpr (Sums) add(l, l, sum);
    copy(weights, s);
  }

  // Moves the reference of the rows that have grown large, and rescales what depends on it. Each
  // row by itself: the factor of the others is 1.
  template <bool Sums>
  KITTENS_DEVICE void rebase(column& sum, column& is_large) {
    column top, factor;
    if constexpr (Sums) {
      row_max(top, s);
      finish_row_sum(is_large);
    } else {
      copy(top, sum);
    }
    constexpr float kInf = std::numeric_limits<float>::infinity();
    map([=](float x, float large) { return large > 0.0f && x < kInf ? 1.0f / x : 1.0f; }, factor,
        top, is_large);
    map([](float x, float f) { return x - log2f(f); }, m, m, factor);
    mul_row(s, s, factor);
    mul_row(o, o, factor);
    if constexpr (Sums) {
      mul(sum, sum, factor);
      mul(l, l, factor);
    }
  }

  KITTENS_DEVICE void attend(const key_blocks& blocks) {
    column unused;
    int j = blocks.end - 1;
    shared.k_ring.wait_full(k_at);
    turn::wait(w);
    issue_scores();
    turn::pass(w);
    warpgroup::mma_async_wait<0>();
    release_k();
    cap();
    mask(j);
    careful_softmax(unused);
    copy(weights, s);
    if (Config::q_stages > 1 && number > 0) release_q();
    --j;
#pragma unroll 1
    for (; j >= blocks.end_fast; --j) careful_step(j);
    if constexpr (Config::fast) {
      if (p.sums()) {
#pragma unroll 1
        for (; j >= blocks.first_fast; --j) fast_step<true>();
      } else {
#pragma unroll 1
        for (; j >= blocks.first_fast; --j) fast_step<false>();
      }
#pragma unroll 1
      for (; j >= blocks.first; --j) careful_step(j);
    }
    shared.v_ring.wait_full(v_at);
    issue_output();
    finish_row_sum(l);
    warpgroup::mma_async_wait<0>();
    release_v();
  }

  // Whether the lane's rows overflowed, as two bits; tells the producer of the warp's.
  KITTENS_DEVICE uint32_t judge(bool was_fast) {
    uint32_t rows = 0;
    if (was_fast) {
      // NaN where an element of o, or of the sums in it, is not finite.
      float is_finite[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = 0; i < Config::head_dim / 2 + 4; ++i) {
        is_finite[i / 2 % 2] = fmaf(o.data[0][i], 0.0f, is_finite[i / 2 % 2]);
      }
      column bad;
      bad.data[0].set({is_finite[0]});
      bad.data[1].set({is_finite[1]});
      map([](float x, float sum) { return x == 0.0f && sum < 0x1p120f ? 0.0f : 1.0f; }, bad, bad,
          l);
      finish_row_sum(bad);
      rows = (bad.data[0].words[0] != 0.0f ? 1 : 0) | (bad.data[1].words[0] != 0.0f ? 2 : 0);
    }
    const bool any = arch::vote_any(rows != 0);
    if (arch::lane_id() == 0) {
      shared.failed[number % 2][w * 4 + arch::warp_id() % 4] = any;
      arrive(shared.judged[number % 2]);
    }
    return rows;
  }

  // o's rows, divided by their sums, sinks counted; and lse in l.
  KITTENS_DEVICE void finish(output& result) {
    column inverse;
    if constexpr (Config::fast) {
      row_sums_of(inverse, o);
    } else {
      copy(inverse, l);
    }
    map([](float x) { return x == 0.0f ? 0.0f : 1.0f / x; }, inverse, inverse);
    map([](float x, float sum) { return x + log2f(sum); }, l, m, l);  // in units of log₂
    if (p.sinks != nullptr) {
      const float sink = p.sinks[tile.head] * 1.442695041f;
      map(
          [=](float x, float log_sum) {
            return log_sum == kHidden ? 0.0f : x / (1.0f + exp2f(sink - log_sum));
          },
          inverse, inverse, l);
      map(
          [=](float log_sum) {
            const float top = fmaxf(sink, log_sum);
            return top == kHidden ? kHidden : top + log2f(exp2f(sink - top) + exp2f(log_sum - top));
          },
          l, l);
    }
    map([](float x) { return x * 0.6931471806f; }, l, l);
#pragma unroll
    for (int i = 0; i < Config::head_dim / 2; ++i) result.data[0][i] = o.data[0][i];
    mul_row(result, result, inverse);
  }

  KITTENS_DEVICE void store_tile() {
    output result;
    finish(result);
    auto& staging = shared.q[q_at.stage][w];  // the last product with the queries is done
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
    finish(result);
    if (signals()) tma::store_async_wait<0>();
    warpgroup::sync(kBarrier + w);
    const int lane = arch::lane_id();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row() + half * 8 + lane / 4;
      if ((rows >> half & 1) == 0 || row >= tile.rows) continue;
      T* const to = p.o_rows.row({tile.batch, tile.head, tile.q_start + row, 0});
#pragma unroll
      for (int i = half; i < Config::head_dim / 4; i += 2) {
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
    if (p.lse.data == nullptr || lane % 4 != 0) return;
    float* const to = p.lse.row({tile.batch, tile.head, 0, 0}) + tile.q_start;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row() + half * 8 + lane / 4;
      if ((rows >> half & 1) != 0 && row < tile.rows) {
        arch::store_global(to + row, l.data[half].words[0]);
      }
    }
  }
};

}  // namespace thunderkittens::inline KITTENS_TARGET
