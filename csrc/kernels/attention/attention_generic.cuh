// attention, forward, for every architecture since sm_80: the same function as
// attention_forward.cuh, by mma.sync, ldmatrix and cp.async.
//
// A block has one tile: four warps with 16 or 32 rows each. All of them load the blocks of keys and
// values, the last one first, into two stages; then every warp goes by itself:
//
//   s = q kᵀ;  p by the rows' maxima (attention_softmax.cuh);  o += p v
//
// The maxima are those of the blocks at the masks' edges, and of the first one. After that they
// stay, so that no row of a whole block waits for its maximum, and o is not rescaled, until a sum
// of p shows that they are far behind (`attend`).
//
// Synchronisation: each block of keys and values is a group of asynchronous copies. A thread waits
// for its own part, and the barrier behind that shows the block to all; it also tells that all have
// read the stage of the block before, into which the next one is then loaded.
//
// Registers are what limits the kernel: 32 rows of o and s, and a block's p, are up to 200 a
// thread, and they fetch keys and values for both row tiles at once. So what a block works on is in
// shared memory, and what seldom happens is written once.
//
// The output takes the queries' place in shared memory on its way.
//
// Rounding: as the kernel of heads above 128 (attention_forward.cuh): p is rounded to the type of v
// for the product, and o divided by the sum of p before rounding.
//
// Source: Dao, FlashAttention-2 (2023).
#pragma once

#include "kernels/attention/attention_generic_tile.cuh"
#include "kernels/attention/attention_softmax.cuh"
#include "kernels/attention/attention_walk.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class T, size_t Form>
struct attention_generic_config {
  using type = T;
  static constexpr attention_generic_form form = kGenericForms[Form];
  static constexpr int head_dim = form.head_dim, value_dim = head_dim;
  static constexpr int keys = form.keys, half_keys = keys / 2;
  static constexpr int warps = 4, row_tiles = form.row_tiles;
  static constexpr int warp_rows = kBase * row_tiles, rows = warps * warp_rows;
  static constexpr int threads = warps * kWarp;
  // Of the softmax.
  static constexpr bool capped = false, sums = true, fixed_reference = true, ones_beside_v = false;

  using q_tile = st<T, kBase, head_dim>;  // of a warp; o has the same shape
  using k_tile = st<T, keys, head_dim>;
};

// Of key_blocks, what a warp reads of shared memory: without padding, which nobody writes there.
struct key_range {
  int first, end, first_fixed, end_fixed;
};

// What a block works on.
template <class Config>
struct attention_generic_work {
  attention_tile tile;
  attention_rows<const typename Config::type> keys, values;
  int first, end;                    // the blocks of keys that rows of the tile see
  key_range of_warp[Config::warps];  // and those that a warp's rows see
};

template <class Config>
struct attention_generic_shared {
  typename Config::q_tile q[Config::warps][Config::row_tiles];  // and then o
  typename Config::k_tile k[2], v[2];                           // block n in n % 2
  attention_generic_work<Config> work;
};

template <class Config>
struct attention_generic_arguments : attention_arguments {
  attention_operand<const typename Config::type> q, k, v;
  attention_operand<typename Config::type> o;
  bool capped;
};

template <class Config>
class attention_generic_block {
  using T = typename Config::type;
  using q_tile = typename Config::q_tile;
  using k_tile = typename Config::k_tile;
  using output = rt_fl<kBase, Config::head_dim>;
  using column = typename attention_softmax<Config>::column;
  static constexpr int kTiles = Config::row_tiles;
  static constexpr int kColTiles = Config::head_dim / kBase, kKeyTiles = Config::keys / kBase;
  using scores = rt_fl<kBase, Config::keys>[kTiles];
  using weights = rt<T, kBase, Config::keys>[kTiles];

 public:
  KITTENS_DEVICE attention_generic_block(const attention_generic_arguments<Config>& p,
                                         attention_generic_shared<Config>& shared)
      : p(p), shared(shared), work(shared.work), tile(shared.work.tile) {}

  // One lane's of each warp, before a barrier.
  KITTENS_DEVICE void prepare(const attention_tile& of_block) {
    const int warp = arch::warp_id(), row = of_block.m * Config::rows;
    key_blocks mine =
        key_blocks::of<Config>(p, of_block, row + warp * Config::warp_rows, Config::warp_rows);
    const key_blocks all = key_blocks::of<Config>(p, of_block, row, Config::rows);
    if (p.capped) mine.end_fixed = mine.first_fixed;  // none: they would need the cap as well
    if (mine.first == mine.end) mine.first = mine.end = all.first;
    work.of_warp[warp] = {mine.first, mine.end, mine.first_fixed, mine.end_fixed};
    if (warp != 0) return;
    const int key_head = of_block.head / p.heads_per_key;
    work.tile = of_block;
    work.keys = p.k.rows(of_block.batch, key_head, of_block.k_start, of_block.keys);
    work.values = p.v.rows(of_block.batch, key_head, of_block.k_start, of_block.keys);
    work.first = all.first;
    work.end = all.end;
  }

  KITTENS_DEVICE void compute() {
    const key_range mine = work.of_warp[arch::warp_id()];
    j = work.end - 1;
    load_queries();
    if (j >= work.first) {  // no whole block, perhaps
      load_rows<Config::threads>(shared.k[j & 1], work.keys.from(j * Config::keys));
      load_rows<Config::threads>(shared.v[j & 1], work.values.from(j * Config::keys));
    }
    arch::cp_async_commit();
    begin();
    for (; j >= mine.end; --j) skip();
    attend(mine);
    for (; j >= work.first; --j) skip();
    finish();
  }

 private:
  // ---- Blocks

  // The first of this warp's rows in the sequence.
  KITTENS_DEVICE int warp_row() const {
    return tile.m * Config::rows + arch::warp_id() * Config::warp_rows;
  }

  // Block j is there for all, and all are done with the one before.
  KITTENS_DEVICE void meet() const {
    arch::cp_async_wait<0>();
    arch::sync_block();
  }
  // Asks for the next block, into the stage of the one before. (After the scores' products, which
  // would wait for the copies' addresses: what is read of shared memory behind them waits for
  // them.)
  KITTENS_DEVICE void request() {
    const int next = j - 1, row = next * Config::keys;
    load_all_rows<Config::threads>(shared.k[next & 1], work.keys.from(row), next >= work.first);
    load_all_rows<Config::threads>(shared.v[next & 1], work.values.from(row), next >= work.first);
    arch::cp_async_commit();
  }
  KITTENS_DEVICE void skip() {
    meet();
    request();
  }

  // ---- Queries

  KITTENS_DEVICE void load_queries() {
    const auto rows = p.q.rows(tile.batch, tile.head, tile.q_start, tile.rows).from(warp_row());
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      load_rows<kWarp>(shared.q[arch::warp_id()][r], rows.from(r * kBase));
    }
    arch::cp_async_commit();
  }

  // Once the queries are there, which each warp loads for itself.
  KITTENS_DEVICE void begin() {
    arch::cp_async_wait<1>();
    arch::sync_warp();
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      zero(o[r]);
      softmax[r] = {p.scale, p.scale_log2};
      softmax[r].start();
      if constexpr (Config::form.queries_are_loaded) {
#pragma unroll
        for (int c = 0; c < kColTiles; ++c) load_query(queries[r][c], r, c);
      }
    }
  }

  KITTENS_DEVICE void load_query(fragment& left, int r, int c) const {
    const q_tile& q = shared.q[arch::warp_id()][r];
    load_fragment<false>(left, q, left_index<false, q_tile>(), 0, c * kBase);
  }

  // ---- Scores, weights, and their products with the values

  // Blocks j to mine.first. Of whole ones, whose keys all rows see, p is by the maxima as they are,
  // in a loop of its own. If they do not serve, which is seldom, the scores are computed once more,
  // and maxima raised, as they are for the other blocks.
  KITTENS_DEVICE void attend(const key_range& mine) {
    while (j >= mine.first) {
      scores s;
      weights w;
      column sum[kTiles];
      bool is_whole = false;
      for (; !is_whole && mine.first_fixed <= j && j < mine.end_fixed; j -= !is_whole) {
        meet();
        score(s);
        request();
        is_whole = !weigh(s, w, sum);
        if (!is_whole) add_values(w);
      }
      if (is_whole) {
        score(s);
      } else {
        if (j < mine.first) return;
        meet();
        score(s);
        request();
        hide(s);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) pos_infty(sum[r]);
      }
      raise_maxima(s, w, sum);
      add_values(w);
      --j;
    }
  }

  KITTENS_DEVICE void hide(scores& s) const {
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      if (p.capped) p.softcap.cap(s[r]);
      const int diagonal = warp_row() + r * kBase + tile.keys - tile.rows;
      attention_mask{diagonal, tile.keys, p.left, p.right}.hide(s[r], j * Config::keys);
    }
  }

  // s = q kᵀ
  KITTENS_DEVICE void score(scores& s) const {
    const k_tile& k = shared.k[j & 1];
    const int first = right_index<false, k_tile>();
#pragma unroll
    for (int r = 0; r < kTiles; ++r) zero(s[r]);
#pragma unroll
    for (int c = 0; c < kColTiles; ++c) {
      fragment left[kTiles];
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
        if constexpr (Config::form.queries_are_loaded) {
#pragma unroll
          for (int i = 0; i < 4; ++i) left[r][i] = queries[r][c][i];
        } else {
          load_query(left[r], r, c);
        }
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        fragment right;
        load_fragment<false>(right, k, first, n * kBase, c * kBase);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) multiply<T>(s[r], 0, n, left[r], right);
      }
    }
  }

  // p by the maxima as they are, and this lane's sums of it. Whether they serve all rows of the
  // warp; then l has the sums.
  KITTENS_DEVICE bool weigh(scores& s, weights& w, column (&sum)[kTiles]) {
    bool is_large = false;
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      softmax[r].steady(s[r], sum[r]);
      copy(w[r], s[r]);
      is_large = is_large || softmax[r].is_large(sum[r]);
    }
    if (!is_steady || arch::vote_any(is_large)) return false;
#pragma unroll
    for (int r = 0; r < kTiles; ++r) add(softmax[r].l, softmax[r].l, sum[r]);
    return true;
  }

  // p by the maxima of the rows, which s raises where `sum` is large.
  KITTENS_DEVICE void raise_maxima(scores& s, weights& w, const column (&sum)[kTiles]) {
    bool all_steady = true;
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      column correction;
      softmax[r].online_where_large(s[r], sum[r], correction);
      copy(w[r], s[r]);
      mul_row(o[r], o[r], correction);
      all_steady = all_steady && softmax[r].is_steady();
    }
    is_steady = arch::vote_all(all_steady);
  }

  // o += p v
  KITTENS_DEVICE void add_values(const weights& w) {
    const k_tile& v = shared.v[j & 1];
    const int first = right_index<true, k_tile>();
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int c = 0; c < kColTiles; ++c) {
        fragment right;
        load_fragment<true>(right, v, first, n * kBase, c * kBase);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          multiply<T>(o[r], 0, c, *reinterpret_cast<const fragment*>(&w[r].data[0][4 * n]), right);
        }
      }
    }
  }

  // ---- The end

  KITTENS_DEVICE void finish() {
    const auto rows = p.o.rows(tile.batch, tile.head, tile.q_start, tile.rows).from(warp_row());
    arch::sync_warp();  // the queries have been read
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      output result;
      finish_row_sum(softmax[r].l);
      softmax[r].finish(result, o[r], p.sinks, tile.head, /*was_fixed=*/false);
      store_unfenced(shared.q[arch::warp_id()][r], result);
      store_lse(r);
    }
    arch::sync_warp();
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      store_rows<kWarp>(rows.from(r * kBase), shared.q[arch::warp_id()][r]);
    }
  }

  KITTENS_DEVICE void store_lse(int r) const {
    const int lane = arch::lane_id();
    if (p.lse.data == nullptr || lane % 4 != 0) return;
    float* const to = p.lse.row({tile.batch, tile.head, 0, 0}) + tile.q_start;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row() + r * kBase + half * 8 + lane / 4;
      if (row < tile.rows) arch::store_global(to + row, softmax[r].l.data[half].words[0]);
    }
  }

  const attention_generic_arguments<Config>& p;
  attention_generic_shared<Config>& shared;
  attention_generic_work<Config>& work;
  const attention_tile& tile;
  int j;                   // the block that is worked on
  bool is_steady = false;  // whether all rows of the warp have seen a key, and none is far
  fragment queries[kTiles][Config::form.queries_are_loaded ? kColTiles : 1];
  output o[kTiles];
  attention_softmax<Config> softmax[kTiles];
};

template <class Config>
__global__ void __launch_bounds__(Config::threads)
    attention_generic(const __grid_constant__ attention_generic_arguments<Config> p) {
  auto& shared = *reinterpret_cast<attention_generic_shared<Config>*>(arch::dynamic_shared());
  attention_generic_block<Config> block(p, shared);
  const auto prepare_tile = [&](const auto& walk) {
    if (!walk.valid()) return false;
    if (arch::lane_id() == 0) block.prepare(walk.tile());
    return true;
  };
  const bool is_packed = p.sequences != kNotPacked;
  if (!(is_packed ? prepare_tile(packed_walk<Config>(p)) : prepare_tile(dense_walk<Config>(p))))
    return;
  arch::sync_block();
  block.compute();
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
