// attention, backward: dq where it is not added up in global memory. (attention_backward.cuh)
//
// That is where rows see few keys, so that zeros, bounds and sums take longer than what is computed
// twice here; and above 128 columns, whose tiles of 64 keys would add dq up twice as often as tiles
// of 128: a third of the time went there (benchmarks/attention.md). So a kernel of its own computes
// s and dp again, for tiles of 128 rows, whose dq stays in registers while the keys that they see
// go by:
//
//   s = q kᵀ, dp = do vᵀ;  p = exp(scale · s − lse), ds = p ∘ (dp − delta);  dq += ds k
//
// Persistent blocks: a producer of one thread, and two consumers with 64 rows each, one of which
// has its softmax while the other one has the tensor cores. Synchronisation, with the arrivals that
// a phase needs:
//
//   q_ring    full: 1 + bytes, empty: consumers. Full, it also says which tile it is of
//   do_ring   the same, but for the tile; empty when dq, which takes do's place, has been stored
//   kv_ring   the same; of k and v together
#pragma once

#include "kernels/attention/attention_backward_tile.cuh"
#include "kernels/attention/attention_softmax.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class T, int HeadDim, bool Capped, int ValueDim = HeadDim>
struct attention_backward_dq_config {
  using type = T;
  static constexpr bool capped = Capped;
  static constexpr int consumers = 2;
  static constexpr int rows = 64;  // of a consumer
  static constexpr int record_rows =
      attention_backward_rows_config<T, kLayoutWidth<HeadDim, ValueDim>, false>::rows;
  static constexpr int tile_rows = rows * consumers;
  // Of a block. (At 256 two stages of 64 have no room.)
  static constexpr int keys = HeadDim == 64 ? 128 : HeadDim <= 192 ? 64 : 48, half_keys = keys / 2;
  static constexpr bool fixed_reference = false;
  static constexpr int stages = HeadDim + ValueDim > 320 ? 2 : 3;
  // Of q and do. Two: the next tile's come beside this one's products, and dq leaves beside the
  // next one's (1.02 to 1.06 times the rate of the backward at 256 and 512 keys). Above 128 columns
  // there is no room.
  static constexpr int row_stages = HeadDim > 128 ? 1 : 2;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240;

  using layout = ducks::st_layout::swizzle_128;  // as the forward's
  using q_tile = st<T, rows, HeadDim, layout>;   // and dq's
  using d_o_tile = st<T, rows, ValueDim, layout>;
  using k_tile = st<T, keys, HeadDim, layout>;
  using v_tile = st<T, keys, ValueDim, layout>;
};

// A tile: number m of the row tiles of a sequence and query head.
struct alignas(16) attention_backward_row_tile : attention_tile {
  int first_row_block;             // the number of the sequence's first record
  static constexpr int kEnd = -1;  // of m: there is no more
};

template <class Config>
struct attention_backward_dq_shared {
  // do, and then dq.
  union d_o_place {
    typename Config::d_o_tile d_o;
    typename Config::q_tile dq;
  };
  typename Config::q_tile q[Config::row_stages][Config::consumers];
  d_o_place d_o[Config::row_stages][Config::consumers];
  typename Config::k_tile k[Config::stages];
  typename Config::v_tile v[Config::stages];
  attention_backward_row_tile tile[Config::row_stages];
  ring<Config::row_stages> q_ring, do_ring;
  ring<Config::stages> kv_ring;
};

template <class Config>
struct attention_backward_dq_arguments : attention_backward_operands<Config> {
  using attention_backward_operands<Config>::sequences;
  tma_sequence_map<typename Config::q_tile> dq;

  // The tile of a place. Of a number of no block, m · tile_rows is at least its rows.
  KITTENS_DEVICE attention_backward_row_tile tile_at(const tile_place& place) const {
    constexpr int kRows = Config::tile_rows;
    const int i = sequences.template of_row_block<kRows>(place.m);
    const int m = place.m - sequences.template first_row_block<kRows>(i);
    const attention_sequence at = sequences.at(i, place.batch);
    return {{m, place.head, place.batch, at.q_start, at.k_start, at.rows, at.keys},
            sequences.template first_row_block<Config::record_rows>(i) *
                (Config::record_rows / Config::rows)};
  }
  KITTENS_DEVICE key_blocks blocks_of(const attention_backward_row_tile& tile) const {
    return key_blocks::of<Config>(*this, tile, tile.m * Config::tile_rows, Config::tile_rows);
  }
  // The first row of a consumer, in the tile's sequence.
  KITTENS_DEVICE static int row_of(const attention_backward_row_tile& tile, int w) {
    return tile.m * Config::tile_rows + w * Config::rows;
  }
};

// One thread: it chooses the tiles, brings what they read.
template <class Config>
class attention_backward_dq_producer {
  using arguments = attention_backward_dq_arguments<Config>;

 public:
  KITTENS_DEVICE attention_backward_dq_producer(const arguments& p,
                                                attention_backward_dq_shared<Config>& shared)
      : p(p), shared(shared), walk(p.tiles) {}

  KITTENS_DEVICE void produce() {
    for (; walk.valid(); walk.next()) {
      const attention_backward_row_tile tile = p.tile_at(walk.place());
      if (p.row_of(tile, 0) < tile.rows) load(tile);  // else a number of no block
    }
    shared.q_ring.wait_empty(q_at);
    // All of it: the consumers read all.
    shared.tile[q_at.stage] =
        attention_backward_row_tile{{.m = attention_backward_row_tile::kEnd}, 0};
    arrive(shared.q_ring.full[q_at.stage]);
  }

 private:
  const arguments& p;
  attention_backward_dq_shared<Config>& shared;
  tile_walk walk;
  cursor<Config::row_stages> q_at, do_at;
  cursor<Config::stages> at;

  KITTENS_DEVICE void load(const attention_backward_row_tile& tile) {
    const key_blocks blocks = p.blocks_of(tile);
    shared.q_ring.wait_empty(q_at);
    shared.tile[q_at.stage] = tile;
    load_rows(p.q, shared.q_ring, q_at, tile,
              [&](int w) -> auto& { return shared.q[q_at.stage][w]; });
    load_keys(tile, blocks.first);  // each row of a sequence sees some: attention_sequence
    // Its place is where the tile before stores dq from: behind the first keys.
    load_rows(p.d_o, shared.do_ring, do_at, tile,
              [&](int w) -> auto& { return shared.d_o[do_at.stage][w].d_o; });
    for (int j = blocks.first + 1; j < blocks.end; ++j) load_keys(tile, j);
  }
  // place(w): of consumer w.
  template <class Tile, class Place>
  KITTENS_DEVICE void load_rows(const tma_sequence_map<Tile>& from, ring<Config::row_stages>& rows,
                                cursor<Config::row_stages>& rows_at,
                                const attention_backward_row_tile& tile, Place place) {
    rows.wait_empty(rows_at);
    rows.expect(rows_at, Config::consumers * tma::bytes<Tile>);
    for (int w = 0; w < Config::consumers; ++w) {
      tma::load_async(place(w), from, rows.full[rows_at.stage], p.q_origin(tile),
                      p.q_first(tile) + p.row_of(tile, w), tile.head);
    }
    rows_at.advance();
  }
  KITTENS_DEVICE void load_keys(const attention_backward_row_tile& tile, int j) {
    const int key = j * Config::keys, key_head = tile.head / p.heads_per_key;
    semaphore& full = shared.kv_ring.full[at.stage];
    shared.kv_ring.wait_empty(at);
    shared.kv_ring.expect(at, sizeof(shared.k[0]) + sizeof(shared.v[0]));
    tma::load_async(shared.k[at.stage], p.k, full, p.k_origin(tile, p.k_step), key, key_head);
    tma::load_async(shared.v[at.stage], p.v, full, p.k_origin(tile, p.v_step), key, key_head);
    at.advance();
  }
};

template <class Config>
class attention_backward_dq_consumer {
  using arguments = attention_backward_dq_arguments<Config>;

 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE attention_backward_dq_consumer(const arguments& p,
                                                attention_backward_dq_shared<Config>& shared, int w)
      : p(p), shared(shared), w(w) {}

  // All the tiles of this block.
  KITTENS_DEVICE void consume() {
    for (;; q_at.advance(), do_at.advance()) {
      shared.q_ring.wait_full(q_at);
      tile = read_tile();
      if (tile.m == attention_backward_row_tile::kEnd) break;
      const key_blocks all = p.blocks_of(tile);
      key_blocks mine = key_blocks::of<Config>(p, tile, row(), Config::rows);
      if (mine.first == mine.end) mine.first = mine.end = all.end;
      if (row() < tile.rows) read_rows();
      zero(dq);
      for (int j = all.first; j < mine.first; ++j) skip_block();
      shared.do_ring.wait_full(do_at);
#pragma unroll 1
      for (int j = mine.first; j < mine.end; ++j) {
        step(j * Config::keys);
        release_stored();
      }
      warpgroup::sync(kBarrier + w);  // all have read which tile it is
      if (signals()) shared.q_ring.release_after_mma(q_at);
      for (int j = mine.end; j < all.end; ++j) skip_block();
      store_tile();
    }
    release_stored();
  }

 private:
  using T = typename Config::type;
  using scores = rt_fl<16, Config::keys>;  // [rows, keys]: s and p, dp and ds
  static constexpr int kBarrier = 1;       // one a consumer
  const arguments& p;
  attention_backward_dq_shared<Config>& shared;
  const int w;
  attention_backward_row_tile tile;
  cursor<Config::row_stages> q_at, do_at;
  cursor<Config::stages> at;
  static constexpr int kNone = -1;
  int stored = kNone;      // of the thread that signals: the stage that release_stored gives back
  float lse[2], delta[2];  // of this lane's rows
  rt_fl<16, Config::q_tile::cols> dq;

  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }
  // The first of this consumer's rows, in the tile's sequence; of this warp's.
  KITTENS_DEVICE int row() const { return p.row_of(tile, w); }
  KITTENS_DEVICE int warp_row() const { return row() + arch::warp_id() % 4 * 16; }

  // The same in all lanes, which the compiler must know.
  KITTENS_DEVICE attention_backward_row_tile read_tile() const {
    const attention_backward_row_tile& t = shared.tile[q_at.stage];
    return {{detail::uniform(t.m), detail::uniform(t.head), detail::uniform(t.batch),
             detail::uniform(t.q_start), detail::uniform(t.k_start), detail::uniform(t.rows),
             detail::uniform(t.keys)},
            detail::uniform(t.first_row_block)};
  }

  KITTENS_DEVICE void read_rows() {
    const int64_t head = int64_t{tile.batch} * p.heads + tile.head;
    const int64_t block =
        head * p.row_blocks_of_head + tile.first_row_block + tile.m * Config::consumers + w;
    const auto* const pairs = p.row_blocks[block].pairs;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int of_block = arch::warp_id() % 4 * 16 + half * 8 + arch::lane_id() / 4;
      lse[half] = arch::load_global(&pairs[of_block / 2].lse[of_block % 2]);
      delta[half] = arch::load_global(&pairs[of_block / 2].delta[of_block % 2]);
    }
  }

  // A block that the tile's other rows see, and these do not. Who came later would wait for the
  // stage's next one.
  KITTENS_DEVICE void skip_block() {
    shared.kv_ring.wait_full(at);
    warpgroup::sync(kBarrier + w);
    if (signals()) shared.kv_ring.release_after_mma(at);
    at.advance();
  }

  KITTENS_DEVICE void step(int first_key) {
    scores s, dp;
    shared.kv_ring.wait_full(at);
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.q[q_at.stage][w], shared.k[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_fence();
    warpgroup::mm_ABt(dp, shared.d_o[do_at.stage][w].d_o, shared.v[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<1>(s);
    softmax(s, first_key);
    warpgroup::mma_async_wait<0>(dp);
    gradient(dp, s);
    rt<T, 16, Config::keys> ds;
    copy(ds, dp);
    warpgroup::mma_fence(ds, dq);
    warpgroup::mma_AB(dq, ds, shared.k[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(dq);
    if (signals()) shared.kv_ring.release_after_mma(at);
    at.advance();
  }

  // s becomes p; with a softcap, its tanh.
  KITTENS_DEVICE void softmax(scores& s, int first_key) const {
    if constexpr (Config::capped) p.softcap.cap(s);
    const attention_mask mask{warp_row() + tile.keys - tile.rows, tile.keys, p.left, p.right};
    // Most blocks have nothing to hide: one branch, not three.
    const int diagonal = mask.diagonal - first_key;
    if (tile.keys - first_key < Config::keys || diagonal + p.right < Config::keys - 1 ||
        diagonal + 15 > p.left) {
      mask.hide(s, first_key);
    }
    if constexpr (!Config::capped) {
      each_number([&](int i, int half) { s.data[0][i] = weight(s.data[0][i], half); });
    }
  }
  // dp becomes ds.
  KITTENS_DEVICE void gradient(scores& dp, const scores& s) const {
    each_number([&](int i, int half) {
      float x = s.data[0][i];
      if constexpr (Config::capped) x = weight(x, half) * attention_softcap::slope(x);
      dp.data[0][i] = x * (dp.data[0][i] - delta[half]);
    });
  }
  KITTENS_DEVICE float weight(float logit, int half) const {
    return arch::exp2_approx(fmaf(logit, p.scale_log2, -lse[half]));
  }
  // Calls f(i, half) of each of this lane's numbers, and of which of its rows it is.
  template <class F>
  KITTENS_DEVICE static void each_number(F f) {
#pragma unroll
    for (int i = 0; i < Config::keys / 2; ++i) f(i, i / 2 % 2);
  }

  // dq takes the place of do. Of rows that do not exist, nothing is stored.
  KITTENS_DEVICE void store_tile() {
    mul(dq, dq, p.scale);
    rt<T, 16, Config::q_tile::cols> result;
    copy(result, dq);
    auto& place = shared.d_o[do_at.stage][w].dq;
    release_stored();               // if no step has
    warpgroup::sync(kBarrier + w);  // all have read do
    warpgroup::store(place, result);
    warpgroup::sync(kBarrier + w);
    if (!signals()) return;
    tma::store_async(p.dq, place, p.q_origin(tile), p.q_first(tile) + row(), tile.head);
    tma::store_commit_group();
    stored = do_at.stage;
    if constexpr (Config::row_stages == 1) release_stored();
  }
  // The stage whose dq is on its way out: where there are two, a step of the next tile later.
  KITTENS_DEVICE void release_stored() {
    if (stored == kNone) return;
    tma::store_async_read_wait<0>();
    arrive(shared.do_ring.empty[stored]);
    stored = kNone;
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_backward_dq(const __grid_constant__ attention_backward_dq_arguments<Config> p) {
  begin_dependent_grid();
  auto& s = *reinterpret_cast<attention_backward_dq_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.q_ring.init(Config::consumers);
    s.do_ring.init(Config::consumers);
    s.kv_ring.init(Config::consumers);
  }
  arch::sync_block();
  const int group = warpgroupid();
  if (group == 0) {
    warpgroup::lower_registers<Config::producer_registers>();
    if (arch::warp_id() == 0 && arch::elect_one()) {
      attention_backward_dq_producer<Config>(p, s).produce();
    }
  } else {
    warpgroup::raise_registers<Config::consumer_registers>();
    attention_backward_dq_consumer<Config>(p, s, detail::uniform(group - 1)).consume();
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
