// attention, forward:  s = scale · q kᵀ, masked;  o = softmax(s) v;  lse = log Σ exp(s).
//
//   q [B, Sq, Hq, D], k and v [B, Sk, Hk, D] → o [B, Sq, Hq, D], lse [B, Hq, Sq]
//
// Query head h reads key head h / (Hq / Hk). With a causal mask, row i sees the keys up to
// i + Sk − Sq. A row that sees none gives o = 0 and lse = −inf.
//
// A block works on tiles of 64 rows for each of its consumer warpgroups, one (rows, head, batch)
// after the other:
//
//   producer    one thread: q of the tile, then its blocks of keys and values, last block first
//   consumers   one warpgroup each for 64 rows: s = q kᵀ, softmax in registers, o += p v
//
// Synchronisation, with the arrivals that a phase needs:
//
//   q_full    1 + bytes    producer → consumers: the tile's queries are there
//   q_empty   consumers    consumers → producer: the last product with them is done
//   k_ring, v_ring         two stages each; full: 1 + bytes, empty: consumers
//   turns     2 warpgroups of named barriers: whose products the tensor cores work on
//
// Timeline of a consumer. Its softmax runs while the tensor cores work on its own p v and on the
// other consumers' products, which the turns keep apart:
//
//   s(0)  softmax(0) | s(1) o(0) | softmax(1) | s(2) o(1) | softmax(2) | …  o(n − 1) | o / l →
//   store
//
// Numerics: scores and sums in float; p = exp2(scale·log₂e · (s − m)) with the running maximum m is
// at most 1, and rounded to the type of v for the product; the sum l is of p before that rounding.
// Every exponent is at most 0. The sum of a row is each lane's own until the end.
//
// Source: Dao et al., FlashAttention-2 (2023); Shah et al., FlashAttention-3 (2024), section 3.
#pragma once

#include <kittens.cuh>
#include <limits>

#include "kernels/attention/attention.h"

namespace thunderkittens::inline KITTENS_TARGET {

using namespace kittens;

template <class T, int HeadDim, bool Causal>
struct attention_forward_config {
  using type = T;
  static constexpr int head_dim = HeadDim;
  static constexpr bool causal = Causal;
  // The accumulators o and s and the operand p take 160 registers a thread at head dimension 128,
  // 128 at 64: room for two and three consumers.
  static constexpr int consumers = HeadDim == 64 ? 3 : 2;
  static constexpr int rows = 64 * consumers;  // of a tile
  static constexpr int keys = 128;             // of a block
  static constexpr int stages = 2;
  static constexpr int warpgroups = consumers + 1;
  static constexpr int threads = 128 * warpgroups;
  static constexpr int producer_registers = consumers == 2 ? 24 : 32;
  static constexpr int consumer_registers = consumers == 2 ? 240 : 160;

  using q_tile = st<T, 64, HeadDim>;  // of one consumer; o has the same shape
  using k_tile = st<T, keys, HeadDim>;
};

template <class Config>
struct attention_forward_shared {
  typename Config::q_tile q[Config::consumers], o[Config::consumers];
  typename Config::k_tile k[Config::stages], v[Config::stages];
  ring<Config::stages> k_ring, v_ring;
  semaphore q_full, q_empty;
};

template <class Config>
struct attention_forward_tensors {
  tma_map<typename Config::q_tile> q, o;
  tma_map<typename Config::k_tile> k, v;
  gl<float> lse;  // [B, Hq, 1, Sq]; data is null when it is not wanted
  tile_scheduler tiles;
  int rows, keys;           // Sq, Sk
  int heads_per_key;        // Hq / Hk
  float scale, scale_log2;  // scale, scale · log₂e
};

// The blocks of keys that a tile reads: `count`, of which the last `masked` need a mask (the others
// are seen whole by every row).
struct key_blocks {
  int count, masked;

  // For the rows from first_row on; `Config::rows` of them.
  template <class Config>
  KITTENS_DEVICE static key_blocks of(int first_row, int rows, int keys) {
    constexpr int N = Config::keys;
    if constexpr (!Config::causal) {
      return {(keys + N - 1) / N, 1};
    } else {
      const int first_end = first_row + 1 + keys - rows;  // where the first row's keys end
      const int last_end = first_end + Config::rows - 1;
      const int end = last_end < 0 ? 0 : last_end < keys ? last_end : keys;
      const int whole = first_end < 0 ? 0 : first_end < keys ? first_end / N : keys / N;
      const int count = (end + N - 1) / N;
      return {count, count - whole > 0 ? count - whole : 1};
    }
  }
};

// ---- Producer -----------------------------------------------------------------------------------

template <class Config>
KITTENS_DEVICE void produce(const attention_forward_tensors<Config>& p,
                            attention_forward_shared<Config>& s) {
  constexpr int kBytes = tma::bytes<typename Config::k_tile>;
  cursor<Config::stages> at;
  uint32_t q_phase = 1;  // passes at once
  for (tile_walk tile(p.tiles); tile.valid(); tile.next()) {
    const auto [m, head, batch] = tile.place();
    const key_blocks blocks = key_blocks::of<Config>(m * Config::rows, p.rows, p.keys);
    if (blocks.count == 0) continue;
    wait(s.q_empty, q_phase);
    q_phase ^= 1;
    expect_bytes(s.q_full, Config::consumers * tma::bytes<typename Config::q_tile>);
    for (int w = 0; w < Config::consumers; ++w) {
      tma::load_async(s.q[w], p.q, s.q_full, {batch, head, m * Config::consumers + w, 0});
    }
    const int key_head = head / p.heads_per_key;
    for (int j = blocks.count - 1; j >= 0; --j, at.advance()) {
      s.k_ring.wait_empty(at);
      s.k_ring.expect(at, kBytes);
      tma::load_async(s.k[at.stage], p.k, s.k_ring.full[at.stage], {batch, key_head, j, 0});
      s.v_ring.wait_empty(at);
      s.v_ring.expect(at, kBytes);
      tma::load_async(s.v[at.stage], p.v, s.v_ring.full[at.stage], {batch, key_head, j, 0});
    }
  }
}

// ---- Consumers ----------------------------------------------------------------------------------

template <class Config>
class attention_consumer {
 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE attention_consumer(const attention_forward_tensors<Config>& p,
                                    attention_forward_shared<Config>& shared, int w)
      : p(p), shared(shared), w(w) {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    uint32_t q_phase = 0;
    turn::start(w);
    for (tile_walk tile(p.tiles); tile.valid(); tile.next()) {
      const auto [m_tile, head, batch] = tile.place();
      const int tile64 = m_tile * Config::consumers + w;
      const key_blocks blocks = key_blocks::of<Config>(m_tile * Config::rows, p.rows, p.keys);
      zero(o);
      zero(l);
      neg_infty(m);
      if (blocks.count > 0) {
        wait(shared.q_full, q_phase);
        q_phase ^= 1;
        attend(tile64 * 64 + arch::warp_id() % 4 * 16, blocks);
      }
      store_tile(tile64, head, batch);
    }
    turn::finish(w);
    if (signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using scores = rt_fl<16, Config::keys>;
  using column = typename scores::col_vec;  // one value per row
  using turn = turns<Config::consumers>;
  static constexpr int kBarrier = turn::kFirstBarrier + turn::kBarriers;  // one a consumer
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();

  const attention_forward_tensors<Config>& p;
  attention_forward_shared<Config>& shared;
  const int w;
  cursor<Config::stages> k_at, v_at;
  scores s;
  rt<T, 16, Config::keys> weights;  // s as the second product takes it
  rt_fl<16, Config::head_dim> o;
  column m, l;  // running maximum of the scores, and this lane's part of the running sum

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }

  KITTENS_DEVICE void issue_scores() {
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.q[w], shared.k[k_at.stage]);
    warpgroup::mma_commit_group();
  }
  KITTENS_DEVICE void issue_output() {
    warpgroup::mma_fence();
    warpgroup::mma_AB(o, weights, shared.v[v_at.stage]);
    warpgroup::mma_commit_group();
  }
  KITTENS_DEVICE void release_k() {
    if (signals()) shared.k_ring.release(k_at);
    k_at.advance();
  }
  KITTENS_DEVICE void release_v() {
    if (signals()) shared.v_ring.release(v_at);
    v_at.advance();
  }

  // Hides the keys of block j that do not exist, or that this warp's rows do not see.
  KITTENS_DEVICE void mask(int first_row, int j) {
    const int first_key = j * Config::keys;
    right_fill(s, s, p.keys - first_key, kHidden);
    if constexpr (Config::causal) {
      tril(s, s, first_row + p.keys - p.rows - first_key, kHidden);
    }
  }

  // s → p in place, m, l; `correction` is what o is to be multiplied with. A row that has seen no
  // key yet has m = −inf, which only a masked block can leave; its p is then exp2(−inf) = 0.
  template <bool Masked>
  KITTENS_DEVICE void softmax(column& correction) {
    column scaled;
    copy(correction, m);
    row_max(m, s, m);
    const float c = p.scale_log2;
    map([=](float x) { return Masked && x == kHidden ? 0.0f : x * c; }, scaled, m);
    map([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, correction, correction,
        scaled);
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, scaled);
    mul(l, l, correction);
    partial_row_sum(l, s, l);
  }

  template <bool Masked>
  KITTENS_DEVICE void step(int first_row, int j) {
    shared.k_ring.wait_full(k_at);
    turn::wait(w);
    issue_scores();
    shared.v_ring.wait_full(v_at);
    issue_output();
    turn::pass(w);
    warpgroup::mma_async_wait<1>();
    release_k();
    if constexpr (Masked) mask(first_row, j);
    column correction;
    softmax<Masked>(correction);
    warpgroup::mma_async_wait<0>();
    release_v();
    copy(weights, s);
    mul_row(o, o, correction);
  }

  KITTENS_DEVICE void attend(int first_row, const key_blocks& blocks) {
    column unused;
    int j = blocks.count - 1;
    shared.k_ring.wait_full(k_at);
    issue_scores();
    warpgroup::mma_async_wait<0>();
    release_k();
    mask(first_row, j);
    softmax<true>(unused);
    copy(weights, s);
    if constexpr (Config::causal) {
#pragma unroll 1
      for (--j; j >= blocks.count - blocks.masked; --j) step<true>(first_row, j);
    } else {
      --j;
    }
#pragma unroll 1
    for (; j >= 0; --j) step<false>(first_row, j);
    if (signals()) arrive(shared.q_empty);
    shared.v_ring.wait_full(v_at);
    issue_output();
    finish_row_sum(l);
    warpgroup::mma_async_wait<0>();
    release_v();
  }

  KITTENS_DEVICE void store_tile(int tile64, int head, int batch) {
    column inverse;
    map([](float x) { return x == 0.0f ? 0.0f : 1.0f / x; }, inverse, l);
    mul_row(o, o, inverse);
    if (signals()) tma::store_async_read_wait<0>();  // of the tile before
    warpgroup::sync(kBarrier + w);
    warpgroup::store(shared.o[w], o);
    warpgroup::sync(kBarrier + w);
    if (signals()) {
      tma::store_async(p.o, shared.o[w], {batch, head, tile64, 0});
      tma::store_commit_group();
    }
    if (p.lse.data != nullptr) {
      const float scale = p.scale;
      map([=](float x, float y) { return fmaf(x, scale, logf(y)); }, m, m, l);
      store(p.lse, m, {batch, head, 0, tile64 * 4 + arch::warp_id() % 4});
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_forward(const __grid_constant__ attention_forward_tensors<Config> p) {
  auto& s = *reinterpret_cast<attention_forward_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    init_semaphore(s.q_full, 1);
    init_semaphore(s.q_empty, Config::consumers);
    s.k_ring.init(Config::consumers);
    s.v_ring.init(Config::consumers);
  }
  arch::sync_block();
  const int group = warpgroupid();
  if (group == 0) {
    warpgroup::lower_registers<Config::producer_registers>();
    if (arch::warp_id() == 0 && arch::elect_one()) produce(p, s);
  } else {
    warpgroup::raise_registers<Config::consumer_registers>();
    attention_consumer<Config>(p, s, group - 1).consume();
  }
}

}  // namespace thunderkittens::inline KITTENS_TARGET
