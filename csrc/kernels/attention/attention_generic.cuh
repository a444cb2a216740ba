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
// Shared memory is swizzled (types/shared_tile.cuh): copies, ldmatrix and the output, which takes
// the queries' place on its way, have no bank conflicts. Behind a tensor's last row and column the
// copies write zeros and read nothing.
//
// Rounding: as the kernel of heads above 128 (attention_forward.cuh): p is rounded to the type of v
// for the product, and o divided by the sum of p before rounding.
//
// Source: Dao, FlashAttention-2 (2023).
#pragma once

#include "kernels/attention/attention_softmax.cuh"
#include "kernels/attention/attention_walk.cuh"
#include "thunderkittens/kernels/attention.h"

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

// Some rows of a tensor: what there is of them.
template <class T>
struct attention_rows {
  T* data;         // the first one
  int64_t stride;  // in elements
  int count, width;

  KITTENS_DEVICE bool has(int row, int col) const { return row < count && col < width; }
  KITTENS_DEVICE T* at(int row, int col) const { return data + row * stride + col; }
  KITTENS_DEVICE attention_rows from(int row) const {
    return {at(row, 0), stride, count - row, width};
  }
};

// Where those of all heads and batches are.
template <class T>
struct attention_operand {
  T* data;
  attention_strides strides;
  int width;

  KITTENS_DEVICE attention_rows<T> rows(int batch, int head, int first, int count) const {
    return {data + batch * strides.batch + head * strides.head + first * strides.row, strides.row,
            count, width};
  }
};

template <class Config>
struct attention_generic_arguments : attention_arguments {
  attention_operand<const typename Config::type> q, k, v;
  attention_operand<typename Config::type> o;
  bool capped;
};

// Calls f(row, col) for each 16 bytes of a tile that are this thread's. Of eight neighbouring
// threads none has the banks of another, in chunks of 64 bytes either.
template <class Tile, int Threads, class F>
KITTENS_DEVICE void for_each_piece(int thread, F f) {
  constexpr int kElements = 16 / sizeof(typename Tile::dtype),
                kPieces = Tile::chunk_cols / kElements;
  static_assert(Tile::num_elements % (kElements * Threads) == 0, "each thread has as many");
#pragma unroll
  for (int first = 0; first < Tile::num_elements / kElements; first += Threads) {
    const unsigned n = static_cast<unsigned>(first + thread);
    const unsigned chunk = n / (kPieces * Tile::rows);
    f(n / kPieces % Tile::rows, chunk * Tile::chunk_cols + n % kPieces * kElements);
  }
}

// Starts the copies of a tile.
template <int Threads, class Tile, class T>
KITTENS_DEVICE void load_rows(Tile& dst, const attention_rows<T>& src) {
  for_each_piece<Tile, Threads>(arch::thread_id() % Threads, [&](int row, int col) {
    const bool there = src.has(row, col);
    arch::cp_async<16>(&dst(row, col), there ? src.at(row, col) : src.data, there);
  });
}

template <class Config>
class attention_generic_block {
  using T = typename Config::type;
  using q_tile = typename Config::q_tile;
  using k_tile = typename Config::k_tile;
  using scores = rt_fl<kBase, Config::keys>;
  using output = rt_fl<kBase, Config::head_dim>;
  using weights = rt<T, kBase, Config::keys>;
  using column = typename attention_softmax<Config>::column;
  using fragment = uint32_t[4];  // 16 × 16, as a product's left side
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
    const int from = detail::matrix_row<rt<T, kBase, kBase>, q_tile>(arch::lane_id());
    const q_tile& q = shared.q[arch::warp_id()][r];
    arch::load_matrix<false>(left, &q.data[detail::moved_index<q_tile>(from, 0, c * kBase)]);
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

  // Columns 16 · n and on of d, or of all rows' d, += left · right; `right` is the transpose of
  // what the lanes have loaded.
  template <class D>
  KITTENS_DEVICE static void multiply(D& d, int n, const fragment& left, const fragment& right) {
    float (&sums)[4] = *reinterpret_cast<float (*)[4]>(&d.data[0][8 * n]);
    float (&next)[4] = *reinterpret_cast<float (*)[4]>(&d.data[0][8 * n + 4]);
    arch::mma_m16n8k16<T>(sums, left, {right[0], right[2]}, sums);
    arch::mma_m16n8k16<T>(next, left, {right[1], right[3]}, next);
  }

  // s = q kᵀ
  KITTENS_DEVICE void score(scores (&s)[kTiles], const k_tile& k) const {
    const int from = detail::matrix_row<rt<T, kBase, kBase>, k_tile>(arch::lane_id());
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
        arch::load_matrix<false>(right,
                                 &k.data[detail::moved_index<k_tile>(from, n * kBase, c * kBase)]);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) multiply(s[r], n, left[r], right);
      }
    }
  }

  // o += p v
  KITTENS_DEVICE void add_values(const weights (&w)[kTiles], const k_tile& v) {
    using columns = rt<T, kBase, kBase, ducks::rt_layout::col>;
    const int from = detail::matrix_row<columns, k_tile>(arch::lane_id());
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int c = 0; c < kColTiles; ++c) {
        fragment right;
        arch::load_matrix<true>(right,
                                &v.data[detail::moved_index<k_tile>(from, n * kBase, c * kBase)]);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          multiply(o[r], c, *reinterpret_cast<const fragment*>(&w[r].data[0][4 * n]), right);
        }
      }
    }
  }

  KITTENS_DEVICE void finish() {
    const auto rows = p.o.rows(tile.batch, tile.head, tile.q_start, tile.rows).from(warp_row());
    const int lane = arch::lane_id();
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
      const auto to = rows.from(r * kBase);
      for_each_piece<q_tile, kWarp>(lane, [&](int row, int col) {
        if (!to.has(row, col)) return;
        const T* const from = &shared.q[arch::warp_id()][r](row, col);
        const uint4 piece = arch::load_shared(reinterpret_cast<const uint4*>(from));
        arch::store_global(reinterpret_cast<uint4*>(to.at(row, col)), piece);
      });
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
