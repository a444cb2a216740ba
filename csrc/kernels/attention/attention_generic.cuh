// attention, forward, for every architecture since sm_80: the same function as
// attention_forward.cuh, by mma.sync, ldmatrix and cp.async.
//
// A block has one tile: four warps with 16 or 32 rows each. All of them load the blocks of keys and
// values, the last one first, into a ring of stages; then every warp goes by itself:
//
//   s = q kᵀ, masked at its edges;  p by an online maximum (attention_softmax.cuh);  o += p v
//
// Synchronisation: each block of keys and values is a group of asynchronous copies. A thread waits
// for its own part, and the barrier behind that shows the block to all; it also tells that all have
// read the stage of the block before, into which the next one is then loaded.
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
  static constexpr int head_dim = form.head_dim, keys = form.keys, stages = form.stages;
  static constexpr int half_keys = keys / 2;
  static constexpr int warps = 4, row_tiles = form.row_tiles;
  static constexpr int warp_rows = kBase * row_tiles, rows = warps * warp_rows;
  static constexpr int threads = warps * kWarp;
  static constexpr bool capped = false, sums = true, fixed_reference = false;  // of the softmax

  using q_tile = st<T, kBase, head_dim>;  // of a warp; o has the same shape
  using k_tile = st<T, keys, head_dim>;
};

template <class Config>
struct attention_generic_shared {
  typename Config::q_tile q[Config::warps][Config::row_tiles];  // and then o
  typename Config::k_tile k[Config::stages], v[Config::stages];
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
  using scores = rt_fl<kBase, Config::keys>;
  using output = rt_fl<kBase, Config::head_dim>;
  using weights = rt<T, kBase, Config::keys>;
  using column = typename attention_softmax<Config>::column;
  static constexpr int kTiles = Config::row_tiles;
  static constexpr int kColTiles = Config::head_dim / kBase, kKeyTiles = Config::keys / kBase;

 public:
  KITTENS_DEVICE attention_generic_block(const attention_generic_arguments<Config>& p,
                                         attention_generic_shared<Config>& shared,
                                         const attention_tile& tile)
      : p(p), shared(shared), tile(tile) {}

  KITTENS_DEVICE void compute() {
    const key_blocks all = key_blocks::of<Config>(p, tile, tile.m * Config::rows, Config::rows);
    const key_blocks mine = key_blocks::of<Config>(p, tile, warp_row(), Config::warp_rows);
    const int key_head = tile.head / p.heads_per_key;
    const auto keys = p.k.rows(tile.batch, key_head, tile.k_start, tile.keys);
    const auto values = p.v.rows(tile.batch, key_head, tile.k_start, tile.keys);
    int requested = 0;
    const auto request = [&] {
      const int j = all.end - 1 - requested, stage = requested % Config::stages;
      if (j >= all.first) {
        load_rows<Config::threads>(shared.k[stage], keys.from(j * Config::keys));
        load_rows<Config::threads>(shared.v[stage], values.from(j * Config::keys));
      }
      ++requested;
      arch::cp_async_commit();  // of nothing, too: waits count groups
    };
    load_queries();
#pragma unroll
    for (int i = 0; i < Config::stages - 1; ++i) request();
    begin();
    int stage = 0;
    for (int j = all.end - 1; j >= all.first; --j) {
      arch::cp_async_wait<Config::stages - 2>();
      arch::sync_block();
      request();
      if (mine.first <= j && j < mine.end) attend(j, stage);
      stage = (stage + 1) % Config::stages;
    }
    finish();
  }

 private:
  // The first of this warp's rows in the sequence.
  KITTENS_DEVICE int warp_row() const {
    return tile.m * Config::rows + arch::warp_id() * Config::warp_rows;
  }

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
    arch::cp_async_wait<Config::stages - 1>();
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
    load_fragment<false>(left, q, fragment_index<false, q_tile>(), 0, c * kBase);
  }

  KITTENS_DEVICE void attend(int j, int stage) {
    scores s[kTiles];
    score(s, shared.k[stage]);
    weights w[kTiles];
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      if (p.capped) p.softcap.cap(s[r]);
      const int diagonal = warp_row() + r * kBase + tile.keys - tile.rows;
      attention_mask{diagonal, tile.keys, p.left, p.right}.hide(s[r], j * Config::keys);
      column correction;
      softmax[r].online(s[r], correction);
      copy(w[r], s[r]);
      mul_row(o[r], o[r], correction);
    }
    add_values(w, shared.v[stage]);
  }

  // s = q kᵀ
  KITTENS_DEVICE void score(scores (&s)[kTiles], const k_tile& k) const {
    const int first = fragment_index<false, k_tile>();
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
        for (int r = 0; r < kTiles; ++r) multiply<T>(s[r], n, left[r], right);
      }
    }
  }

  // o += p v
  KITTENS_DEVICE void add_values(const weights (&w)[kTiles], const k_tile& v) {
    const int first = fragment_index<true, k_tile>();
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int c = 0; c < kColTiles; ++c) {
        fragment right;
        load_fragment<true>(right, v, first, n * kBase, c * kBase);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          multiply<T>(o[r], c, *reinterpret_cast<const fragment*>(&w[r].data[0][4 * n]), right);
        }
      }
    }
  }

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
  const attention_tile tile;
  fragment queries[kTiles][Config::form.queries_are_loaded ? kColTiles : 1];
  output o[kTiles];
  attention_softmax<Config> softmax[kTiles];
};

template <class Config>
__global__ void __launch_bounds__(Config::threads)
    attention_generic(const __grid_constant__ attention_generic_arguments<Config> p) {
  auto& shared = *reinterpret_cast<attention_generic_shared<Config>*>(arch::dynamic_shared());
  const auto run = [&](const auto& walk) {
    if (walk.valid()) attention_generic_block<Config>(p, shared, walk.tile()).compute();
  };
  if (p.sequences != kNotPacked) {
    run(packed_walk<Config>(p));
  } else {
    run(dense_walk<Config>(p));
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
