// attention, forward:  s = scale · q kᵀ, masked;  o = softmax(s) v;  lse = log Σ exp(s).
//
//   q [B, Sq, Hq, D], k [B, Sk, Hk, D], v [B, Sk, Hk, Dv] → o [B, Sq, Hq, Dv], lse [B, Hq, Sq]
//
// Query head h reads key head h / (Hq / Hk). Row i sees the keys from i + Sk − Sq − left to
// i + Sk − Sq + right. A row that sees none gives o = 0 and lse = −inf. Packed sequences, q [Tq,
// Hq, D], k and v [Tk, Hk, D], have Sq and Sk of their own. With a softcap, s is softcap ·
// tanh(scale · q kᵀ / softcap). A sink is one more logit of a head's rows, without value: it counts
// in lse and in what o is divided by.
//
// A block works on tiles of 64 rows for each of its consumer warpgroups, one (rows, head, batch)
// after the other:
//
//   producer    one thread: chooses the tile; its q, then its blocks of keys and values, last first
//   consumers   one warpgroup each for 64 rows: s = q kᵀ, softmax in registers, o += p v
//
// Synchronisation, with the arrivals that a phase needs:
//
//   q_ring, k_ring, v_ring   full: 1 + bytes, empty: consumers. A stage of q, full, also says which
//                            tile it is of; it is empty again when o, which takes its place, has
//                            been stored
//   judged                   consumer warps → producer: whether the tile has to be done again. One
//                            for even tiles, one for odd: a consumer may be a tile ahead of another
//   turns                    2 warpgroups of named barriers: whose products the tensor cores work
//   on
//
// Timeline of a consumer. Its softmax runs while the tensor cores work on its own p v and on the
// other consumers' products, which the turns keep apart:
//
//   s(0)  softmax(0) | s(1) o(0) | softmax(1) | s(2) o(1) | softmax(2) | …  o(n − 1) | o / l →
//   store
//
// The softmax of one block is computed in one of two ways. In units of log₂, p = exp2(s − m):
//
//   careful   m is the running maximum of each row, and what is there already is rescaled with it.
//             No exponent is above 0.
//   fast      m stays as it is: no maximum, no rescaling. Allowed once m is a maximum over some
//             visible keys, for blocks that all rows see whole. bf16 has float's exponents, so p
//             may be far above 1 without loss; a row whose sum grows large is rescaled then
//             (`rebase`).
//
// Rounding: p is rounded to the type of v for the product, and o is divided by the sum of the
// rounded p, which a column of ones beside v gives in the same product: what rounding does to a
// dominating key cancels. lse takes the sum l of p before rounding, in float; calls that want no
// lse need no l.
//
// Overflow: should the scores of a row rise by more than 127 within one fast block, its p, sum or o
// overflow. Each row is judged at its tile's end; the producer gives the tile out again, the
// careful way is taken for all of it, and the rows that failed are stored once more. So a row's
// bits never depend on its neighbours.
//
// Source: Dao et al., FlashAttention-2 (2023); Shah et al., FlashAttention-3 (2024), section 3.
#pragma once

#include <kittens.cuh>
#include <limits>

#include "kernels/attention/attention.h"

namespace thunderkittens::inline KITTENS_TARGET {

using namespace kittens;

template <class T, int HeadDim, bool Capped = false>
struct attention_forward_config {
  using type = T;
  static constexpr int head_dim = HeadDim;  // D and Dv are at most this; TMA fills up with zeros
  static constexpr bool capped = Capped;    // whether there is a softcap
  // The accumulators o and s and the operand p take 160 registers a thread at head dimension 128,
  // 128 at 64: room for two and three consumers. (Not with a softcap, which computes in more.)
  static constexpr int consumers = HeadDim == 64 && !Capped ? 3 : 2;
  static constexpr int rows = 64 * consumers;                                    // of a tile
  static constexpr int keys = HeadDim <= 128 ? 128 : HeadDim <= 192 ? 112 : 80;  // of a block
  static constexpr int stages = 2;
  static constexpr int warpgroups = consumers + 1;
  static constexpr int threads = 128 * warpgroups;
  static constexpr int producer_registers = consumers == 2 ? 24 : 32;
  static constexpr int consumer_registers = consumers == 2 ? 240 : 160;
  // Beyond, the products take so much longer than the softmax that the careful way costs little;
  // and the ones have no place beside v.
  static constexpr bool fast = HeadDim <= 128;
  // The next tile's queries come while this one is worked on, where there is room for them.
  static constexpr int q_stages = HeadDim <= 128 ? 2 : 1;

  using q_tile = st<T, 64, HeadDim>;  // of one consumer; o has the same shape
  using k_tile = st<T, keys, HeadDim>;
  using v_tile = std::conditional_t<fast, st_ones<T, keys, HeadDim>, k_tile>;
  using o_accumulator = rt_fl<16, HeadDim + (fast ? 16 : 0)>;
};

// A tile: number m of the row tiles of a head, and where its sequence lies.
struct attention_tile {
  int m, head, batch;    // batch 0 where sequences are packed
  int q_start, k_start;  // the sequence's first row and key, where they are packed
  int rows, keys;        // Sq, Sk
};

// What the producer tells the consumers.
struct alignas(16) attention_item {
  attention_tile tile;
  // 0: a new tile. n > 0: the tile n items before this one again, for the rows that failed.
  int again;
  static constexpr int kEnd = -1;  // there is no more
};

template <class Config>
struct attention_forward_shared {
  typename Config::q_tile q[Config::q_stages][Config::consumers];  // and then o
  typename Config::k_tile k[Config::stages];
  typename Config::v_tile v[Config::stages];
  attention_item items[2];                    // of even and of odd numbers
  uint32_t failed[2][4 * Config::consumers];  // whether a row of the warp has, likewise
  ring<Config::q_stages> q_ring;
  ring<Config::stages> k_ring, v_ring;
  semaphore judged[2];  // likewise
};

// cu_seqlens: where packed sequences start, and the last one ends.
struct sequence_ends {
  const void* numbers;
  bool wide;  // int64, else int32

  // Number i, but within `least` and `most`.
  KITTENS_DEVICE int at(int i, int least, int most) const {
    const int64_t n = wide ? arch::load_global(static_cast<const int64_t*>(numbers) + i)
                           : arch::load_global(static_cast<const int*>(numbers) + i);
    return n < least ? least : n > most ? most : static_cast<int>(n);
  }
};

inline constexpr int kNotPacked = -1;

template <class Config>
struct attention_forward_tensors {
  tma_sequence_map<typename Config::q_tile> q, o;
  tma_sequence_map<typename Config::k_tile> k, v;
  gl<typename Config::type> o_rows;  // [B, Hq, Sq, Dv], the same as o
  gl<float> lse;                     // [B, Hq, 1, Sq]; data is null when it is not wanted
  const float* sinks;                // [Hq], or null
  tile_scheduler tiles;
  int rows, keys;  // Sq, Sk; of packed sequences, all together
  sequence_ends q_ends, k_ends;
  int sequences;      // or kNotPacked
  int left, right;    // how far a row sees from its diagonal; at most Sk, and Sq
  int heads_per_key;  // Hq / Hk
  float cap;          // scale / softcap
  float scale_log2;   // what takes s, or tanh of the capped s, to units of log₂

  // Where TMA finds the sequence of a tile.
  KITTENS_DEVICE sequence_origin q_origin(const attention_tile& tile) const {
    return sequences == kNotPacked ? sequence_origin::of(tile.batch)
                                   : sequence_origin::packed(tile.q_start, tile.rows);
  }
  KITTENS_DEVICE sequence_origin k_origin(const attention_tile& tile) const {
    return sequences == kNotPacked ? sequence_origin::of(tile.batch)
                                   : sequence_origin::packed(tile.k_start, tile.keys);
  }
  // l, and so lse, is needed.
  KITTENS_DEVICE bool sums() const {
    return lse.data != nullptr || sinks != nullptr || !std::same_as<typename Config::type, bf16>;
  }
};

// The blocks of keys that some rows see: [first, end), of which [first_fast, end_fast) may be done
// fast, after those behind them have been done.
struct key_blocks {
  int first, end, first_fast, end_fast;

  // For `count` rows of the tile's sequence, from `row` on.
  template <class Config>
  KITTENS_DEVICE static key_blocks of(const attention_forward_tensors<Config>& p,
                                      const attention_tile& tile, int row, int count) {
    constexpr int N = Config::keys;
    const int last = least(row + count, tile.rows) - 1;
    const int diagonal = row + tile.keys - tile.rows;  // of the first row
    const int steps = last - row;
    // Where the keys of the first and of the last row start and end.
    const int first_start = diagonal > p.left ? diagonal - p.left : 0;
    const int last_start = diagonal + steps > p.left ? diagonal + steps - p.left : 0;
    const int first_end = least(tile.keys, diagonal + p.right + 1);
    const int last_end = least(tile.keys, diagonal + steps + p.right + 1);
    if (steps < 0 || last_end <= first_start) return {0, 0, 0, 0};
    const int first = first_start / N, end = (last_end + N - 1) / N;
    const int whole_end = first_end > 0 ? first_end / N : 0;
    const int whole_first = (last_start + N - 1) / N;
    if (!Config::fast || whole_end <= whole_first) return {first, end, first, first};
    // Either the first row, and so each one, has seen keys in the blocks behind, or one more block
    // is done with care.
    return {first, end, whole_first, first_end > whole_end * N ? whole_end : whole_end - 1};
  }

 private:
  KITTENS_DEVICE static int least(int x, int y) { return x < y ? x : y; }
};

// The tiles of a call without packed sequences.
template <class Config>
class dense_walk {
 public:
  KITTENS_DEVICE explicit dense_walk(const attention_forward_tensors<Config>& p)
      : p(p), walk(p.tiles) {}

  KITTENS_DEVICE bool valid() const { return walk.valid(); }
  KITTENS_DEVICE void next() { walk.next(); }
  KITTENS_DEVICE attention_tile tile() const {
    const auto [m, head, batch] = walk.place();
    return {m, head, batch, 0, 0, p.rows, p.keys};
  }

 private:
  const attention_forward_tensors<Config>& p;
  tile_walk walk;
};

// The tiles of all sequences, one after the other: a sequence's last rows first, of all heads. The
// rows before the first sequence and those behind the last one are a sequence each, without keys.
template <class Config>
class packed_walk {
 public:
  KITTENS_DEVICE explicit packed_walk(const attention_forward_tensors<Config>& p)
      : p(p), drawn(static_cast<unsigned>(arch::block_x())) {
    enter();
    seek();
  }

  KITTENS_DEVICE bool valid() const { return sequence < p.sequences + 2; }
  KITTENS_DEVICE void next() {
    const int n = arch::atomic_add(p.tiles.drawn, 1);
    drawn = static_cast<unsigned>(arch::grid_x()) + static_cast<unsigned>(n);
    seek();
    // Each block draws once in vain, and has counted all tiles then: this was the last one.
    if (!valid() && static_cast<unsigned>(n) == first - 1) {
      arch::atomic_exchange(p.tiles.drawn, 0);
    }
  }
  KITTENS_DEVICE attention_tile tile() const {
    const int inside = static_cast<int>(drawn - first), round = inside / p.tiles.heads;
    return {row_tiles() - 1 - round, inside - round * p.tiles.heads, 0, q_start, k_start, rows,
            sequence > 0 ? keys : 0};
  }

 private:
  const attention_forward_tensors<Config>& p;
  unsigned drawn, first = 0;  // this tile's number, and that of the sequence's first
  int sequence = 0;           // 0: the rows before the first one
  int q_start = 0, k_start = 0, rows, keys;

  KITTENS_DEVICE int row_tiles() const { return (rows + Config::rows - 1) / Config::rows; }

  // The sequence that starts where the last one ends.
  KITTENS_DEVICE void enter() {
    const bool inside = sequence <= p.sequences;
    rows = (inside ? p.q_ends.at(sequence, q_start, p.rows) : p.rows) - q_start;
    keys = inside ? p.k_ends.at(sequence, k_start, p.keys) - k_start : 0;
  }
  KITTENS_DEVICE void seek() {
    for (;;) {
      const unsigned end = first + static_cast<unsigned>(row_tiles() * p.tiles.heads);
      if (drawn < end || !valid()) break;
      first = end;
      q_start += rows;
      k_start += keys;
      if (++sequence == p.sequences + 2) break;
      enter();
    }
  }
};

// ---- Producer -----------------------------------------------------------------------------------

// Walk: where the tiles come from.
template <class Config, class Walk>
class attention_producer {
 public:
  KITTENS_DEVICE attention_producer(const attention_forward_tensors<Config>& p,
                                    attention_forward_shared<Config>& shared, Walk walk)
      : p(p), shared(shared), walk(walk) {}

  KITTENS_DEVICE void produce() {
    for (;; ++number) {
      const attention_item item = choose();
      shared.q_ring.wait_empty(q_at);
      shared.items[number % 2] = item;
      if (item.tile.m == attention_item::kEnd) {
        arrive(shared.q_ring.full[q_at.stage]);
        return;
      }
      load(item);
    }
  }

 private:
  const attention_forward_tensors<Config>& p;
  attention_forward_shared<Config>& shared;
  Walk walk;
  int number = 0;   // of the item
  int settled = 0;  // items whose judgement has been looked at
  cursor<Config::q_stages> q_at;
  cursor<Config::stages> at;

  // The consumers are at work on the item before this one, so those before that one are judged; the
  // last one is waited for when there is nothing else to do.
  KITTENS_DEVICE attention_item choose() {
    if constexpr (Config::fast) {
      for (; settled < number - (walk.valid() ? 1 : 0); ++settled) {
        if (failed(settled)) {
          attention_item again = shared.items[settled % 2];
          again.again = number - settled++;
          return again;
        }
      }
    }
    if (!walk.valid()) return {{attention_item::kEnd, 0, 0, 0, 0, 0, 0}, 0};
    return {walk.tile(), 0};
  }

  KITTENS_DEVICE bool failed(int item) {
    wait(shared.judged[item % 2], item / 2 & 1);
    uint32_t any = 0;
    for (const uint32_t warp : shared.failed[item % 2]) any |= warp;
    return any != 0;
  }

  // Goes on to the next tile when the first loads are under way: to draw it takes a while.
  KITTENS_DEVICE void load(const attention_item& item) {
    const attention_tile& tile = item.tile;
    bool goes_on = item.again == 0;
    constexpr int kBytes = tma::bytes<typename Config::k_tile>;
    const key_blocks blocks = key_blocks::of(p, tile, tile.m * Config::rows, Config::rows);
    shared.q_ring.expect(q_at, Config::consumers * tma::bytes<typename Config::q_tile>);
    const sequence_origin queries = p.q_origin(tile), keys = p.k_origin(tile);
    for (int w = 0; w < Config::consumers; ++w) {
      tma::load_async(shared.q[q_at.stage][w], p.q, shared.q_ring.full[q_at.stage], queries,
                      tile.m * Config::rows + w * 64, tile.head);
    }
    q_at.advance();
    const int key_head = tile.head / p.heads_per_key;
    for (int j = blocks.end - 1; j >= blocks.first; --j, at.advance()) {
      const int row = j * Config::keys;
      shared.k_ring.wait_empty(at);
      shared.k_ring.expect(at, kBytes);
      tma::load_async(shared.k[at.stage], p.k, shared.k_ring.full[at.stage], keys, row, key_head);
      shared.v_ring.wait_empty(at);
      shared.v_ring.expect(at, kBytes);
      tma::load_async(values(shared.v[at.stage]), p.v, shared.v_ring.full[at.stage], keys, row,
                      key_head);
      if (goes_on) walk.next();
      goes_on = false;
    }
    if (goes_on) walk.next();
  }

  KITTENS_DEVICE static auto& values(typename Config::v_tile& v) {
    if constexpr (Config::fast) {
      return v.tile;
    } else {
      return v;
    }
  }
};

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

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_forward(const __grid_constant__ attention_forward_tensors<Config> p) {
  auto& s = *reinterpret_cast<attention_forward_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    for (semaphore& judged : s.judged) init_semaphore(judged, 4 * Config::consumers);
    s.q_ring.init(Config::consumers);
    s.k_ring.init(Config::consumers);
    s.v_ring.init(Config::consumers);
  }
  if constexpr (Config::fast) {
    for (auto& v : s.v) group<Config::threads / 32>::one(v.ones);
  }
  arch::sync_block();
  const int group = warpgroupid();
  if (group == 0) {
    warpgroup::lower_registers<Config::producer_registers>();
    if (arch::warp_id() == 0 && arch::elect_one()) {
      if (p.sequences != kNotPacked) {
        attention_producer(p, s, packed_walk(p)).produce();
      } else {
        attention_producer(p, s, dense_walk(p)).produce();
      }
    }
  } else {
    warpgroup::raise_registers<Config::consumer_registers>();
    attention_consumer<Config>(p, s, group - 1).consume();
  }
}

}  // namespace thunderkittens::inline KITTENS_TARGET
