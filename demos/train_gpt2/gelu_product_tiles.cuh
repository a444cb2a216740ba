// The products beside gelu: their tiles, and how these come and go. (gelu_products.cu)
#pragma once

#include "kernels/activation/functions.cuh"
#include "runs.cuh"

namespace gpt2 {

inline constexpr int kConsumers = 2, kBlocks = 2, kStages = 5, kGroup = 128;
inline constexpr int kProductThreads = kGroup * (kConsumers + 1);
inline constexpr int kTile = gelu_product::kTile;                 // rows and columns, of a consumer
inline constexpr int kAtomRows = 64, kAtoms = kTile / kAtomRows;  // of a matrix instruction
inline constexpr int kDepth = 64;                                 // of a step
inline constexpr int kSubtile = 64, kAcross = kTile / kSubtile;   // columns of an atom's rows
inline constexpr int kSubtiles = kAtoms * kAcross;
using gelu = thunderkittens::activation_kernels::gelu_tanh<bf16>;
using atom_sums = rt_fl<16, kTile>;
using atom_tile = st_bf<kAtomRows, kDepth>;
using subtile = st_bf<kAtomRows, kSubtile>;
using subtile_sums = rt_fl<16, kSubtile>;
using order = ordered_barrier<kConsumers, 1 + kConsumers>;

// c = hidden + bias, and gelu of it; the weight is [inner, outer].
struct forward_product {
  using weight_tile = st_bf<kDepth, kTile>;
  using part_of_weight = st_bf<kDepth, kTile / kBlocks>;  // what a block asks for

  KITTENS_DEVICE static void multiply(atom_sums& sums, const atom_tile& x,
                                      const weight_tile& weight) {
    warpgroup::mma_AB(sums, x, weight);
  }
  KITTENS_INLINE static coord place(int column, int step, int part) {
    return {.r = step, .c = column * kBlocks + part};
  }
};

// c = a product ∘ gelu'(hidden); the weight is [outer, inner].
struct backward_product {
  using weight_tile = st_bf<kTile, kDepth>;
  using part_of_weight = st_bf<kTile / kBlocks, kDepth>;

  KITTENS_DEVICE static void multiply(atom_sums& sums, const atom_tile& x,
                                      const weight_tile& weight) {
    warpgroup::mma_ABt(sums, x, weight);
  }
  KITTENS_INLINE static coord place(int column, int step, int part) {
    return {.r = column * kBlocks + part, .c = step};
  }
};

template <class Product>
struct product_arguments {
  tma_map<atom_tile> x;
  tma_map<typename Product::part_of_weight> weight;
  tma_map<subtile> hidden, result;
  const bf16* bias;      // of the forward
  float* partial;        // of the backward: sums of each atom's columns, [atoms, columns]
  int columns, steps;    // of the result; of kDepth, along the inner width
  tile_scheduler tiles;  // of a cluster
};

template <class Product>
struct product_shared {
  atom_tile x[kStages][kAtoms];
  typename Product::part_of_weight weight[kStages][kBlocks];  // all are a weight_tile
  subtile subtiles[kConsumers][kSubtiles];
  sv<float, kSubtile> bias[kConsumers][kAcross];
  ring<kStages> stages;
  // Of a consumer's subtiles: what they hold is there for it; it has written them, all threads;
  // and, of the backward, read them.
  semaphore there[kConsumers][kSubtiles], written[kConsumers][kSubtiles], read[kConsumers];
};

template <class Product>
inline constexpr bool kIsForward = std::same_as<Product, forward_product>;

// The place of a block's tile among all, in tiles.
struct block_tile {
  int row, column;

  KITTENS_INLINE int atom(int number) const { return row * kAtoms + number / kAcross; }
  KITTENS_INLINE coord place(int number) const {
    return {.r = atom(number), .c = column * kAcross + number % kAcross};
  }
};

// The tiles of a block, of which consumer w has numbers w, w + 2, …
struct block_tiles {
  const tile_scheduler& tiles;

  KITTENS_DEVICE int index(int number) const {
    return arch::block_x() / kBlocks + number * (arch::grid_x() / kBlocks);
  }
  KITTENS_DEVICE bool has(int number) const { return index(number) < tiles.count(); }
  KITTENS_DEVICE block_tile at(int number) const {
    const auto [m, n, batch] = tiles.place(index(number));
    return {m * kBlocks + cluster::rank(), n};
  }
};

// One thread: has tiles brought.
template <class Product>
KITTENS_DEVICE void produce(const product_arguments<Product>& p, product_shared<Product>& shared,
                            const block_tiles& tiles) {
  const int rank = cluster::rank();
  cursor<kStages> at;
  for (int number = 0; tiles.has(number); ++number) {
    const block_tile tile = tiles.at(number);
    for (int k = 0; k < p.steps; ++k, at.advance()) {
      semaphore& full = shared.stages.full[at.stage];
      shared.stages.wait_empty(at);  // in all blocks
      shared.stages.expect(at, sizeof(shared.x[0]) + sizeof(shared.weight[0]));
      for (int i = 0; i < kAtoms; ++i) {
        tma::load_async(shared.x[at.stage][i], p.x, full, {.r = tile.row * kAtoms + i, .c = k});
      }
      tma::load_async_multicast(shared.weight[at.stage][rank], p.weight, full,
                                Product::place(tile.column, k, rank), (1 << kBlocks) - 1);
    }
  }
}

// One thread: what comes and goes through the subtiles of a consumer.
template <class Product>
class epilogue_copies {
 public:
  KITTENS_DEVICE epilogue_copies(const product_arguments<Product>& p,
                                 product_shared<Product>& shared, int w)
      : p(p), shared(shared), w(w) {}

  KITTENS_DEVICE void run(const block_tile& tile) {
    if constexpr (kIsForward<Product>) {
      take_both(tile);
    } else {
      bring_hidden(tile);
      take_gradient(tile);
    }
  }

 private:
  const product_arguments<Product>& p;
  product_shared<Product>& shared;
  const int w;
  uint32_t phase = 0;

  // Of pairs of subtiles, hidden's and activated's, one is filled while the other leaves.
  KITTENS_DEVICE void take_both(const block_tile& tile) {
    for (int number = 0; number < kSubtiles; ++number) {
      const int first = number % 2 * 2;
      wait(shared.written[w][first], number / 2);
      tma::store_async(p.hidden, shared.subtiles[w][first], tile.place(number));
      tma::store_async(p.result, shared.subtiles[w][first + 1], tile.place(number));
      tma::store_commit_group();
      tma::store_async_read_wait<0>();
      arrive(shared.there[w][first]);
    }
  }
  KITTENS_DEVICE void bring_hidden(const block_tile& tile) {
    for (int number = 0; number < kSubtiles; ++number) {
      semaphore& there = shared.there[w][number];
      expect_bytes(there, sizeof(subtile));
      tma::load_async(shared.subtiles[w][number], p.hidden, there, tile.place(number));
    }
  }
  KITTENS_DEVICE void take_gradient(const block_tile& tile) {
    for (int number = 0; number < kSubtiles; ++number) {
      wait(shared.written[w][number], phase);
      tma::store_async(p.result, shared.subtiles[w][number], tile.place(number));
      tma::store_commit_group();
    }
    tma::store_async_read_wait<0>();
    wait(shared.read[w], phase);
    phase ^= 1;
  }
};

}  // namespace gpt2
