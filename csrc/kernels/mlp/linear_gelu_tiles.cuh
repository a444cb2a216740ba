// The products beside gelu: their tiles, and how these come and go. (linear_gelu.cuh)
#pragma once

#include "kernels/activation/functions.cuh"
#include "kernels/mlp/mlp.h"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {

using namespace kittens;
using activation_kernels::gelu_erf;
using activation_kernels::gelu_tanh;

// Function: gelu (activation/functions.cuh). KMajor: the weight lies as [outer, inner], else as
// [inner, outer].
template <class T, template <class> class Function, bool KMajor, bool Backward>
struct linear_gelu_config {
  using type = T;
  using function = Function<T>;
  static constexpr bool k_major = KMajor, backward = Backward;
  static constexpr int consumers = 2, blocks = kMlpBlocks, stages = 5;
  static constexpr int warps = 4, threads = 32 * warps * (consumers + 1);  // warps of a consumer
  static constexpr int tile = kMlpTile;                                    // rows and columns
  static constexpr int atom_rows = 64, atoms = tile / atom_rows;           // of a wgmma
  static constexpr int depth = 64;                                         // of a step
  static constexpr int subtile_columns = 64, across = tile / subtile_columns;
  static constexpr int subtiles = atoms * across;

  using atom_sums = rt_fl<16, tile>;
  using x_tile = st<T, atom_rows, depth>;
  using weight_tile = std::conditional_t<KMajor, st<T, tile, depth>, st<T, depth, tile>>;
  using part_of_weight =  // what a block asks for
      std::conditional_t<KMajor, st<T, tile / blocks, depth>, st<T, depth, tile / blocks>>;
  using subtile = st<T, atom_rows, subtile_columns>;
  using subtile_sums = rt_fl<16, subtile_columns>;
  using subtile_rounded = rt<T, 16, subtile_columns>;
  using order = ordered_barrier<consumers, 1 + consumers>;

  KITTENS_DEVICE static void multiply(atom_sums& sums, const x_tile& x, const weight_tile& weight) {
    if constexpr (KMajor) {
      warpgroup::mma_ABt(sums, x, weight);
    } else {
      warpgroup::mma_AB(sums, x, weight);
    }
  }
  KITTENS_INLINE static coord place_of_weight(int column, int step, int part) {
    const int outer = column * blocks + part;
    return KMajor ? coord{.r = outer, .c = step} : coord{.r = step, .c = outer};
  }
};

template <class Config>
struct linear_gelu_arguments {
  using type = typename Config::type;
  tma_map<typename Config::x_tile> x;  // or dy
  tma_map<typename Config::part_of_weight> weight;
  tma_map<typename Config::subtile> hidden, result;  // result: activated, or dhidden
  const type* bias;                                  // of the forward: [outer], or null
  float* partial;        // of the backward: [atoms, outer], sums of their columns, or null
  int outer, steps;      // of Config::depth, along the inner width
  bool keeps_hidden;     // of the forward
  tile_scheduler tiles;  // of a cluster
};

template <class Config>
struct linear_gelu_shared {
  typename Config::x_tile x[Config::stages][Config::atoms];
  // All of a stage are a weight_tile.
  typename Config::part_of_weight weight[Config::stages][Config::blocks];
  typename Config::subtile subtiles[Config::consumers][Config::subtiles];
  sv<float, Config::subtile_columns> bias[Config::consumers][Config::across];
  ring<Config::stages> stages;
  // Of a consumer's subtiles: what they hold is there for it; it has written them, all warps; and,
  // of the backward, read them.
  semaphore there[Config::consumers][Config::subtiles];
  semaphore written[Config::consumers][Config::subtiles];
  semaphore read[Config::consumers];
};

// The place of a block's tile among all, in tiles.
template <class Config>
struct block_tile {
  int row, column;

  KITTENS_INLINE int atom(int number) const {
    return row * Config::atoms + number / Config::across;
  }
  KITTENS_INLINE coord place(int number) const {
    return {.r = atom(number), .c = column * Config::across + number % Config::across};
  }
};

// The tiles of a block, of which consumer w has numbers w, w + 2, …
template <class Config>
struct block_tiles {
  const tile_scheduler& tiles;

  KITTENS_DEVICE int index(int number) const {
    return arch::block_x() / Config::blocks + number * (arch::grid_x() / Config::blocks);
  }
  KITTENS_DEVICE bool has(int number) const { return index(number) < tiles.count(); }
  KITTENS_DEVICE block_tile<Config> at(int number) const {
    const auto [m, n, batch] = tiles.place(index(number));
    return {m * Config::blocks + cluster::rank(), n};
  }
};

// One thread: has tiles brought.
template <class Config>
KITTENS_DEVICE void produce(const linear_gelu_arguments<Config>& p,
                            linear_gelu_shared<Config>& shared, const block_tiles<Config>& tiles) {
  const int rank = cluster::rank();
  cursor<Config::stages> at;
  for (int number = 0; tiles.has(number); ++number) {
    const block_tile<Config> tile = tiles.at(number);
    for (int k = 0; k < p.steps; ++k, at.advance()) {
      semaphore& full = shared.stages.full[at.stage];
      shared.stages.wait_empty(at);  // in all blocks
      shared.stages.expect(at, sizeof(shared.x[0]) + sizeof(shared.weight[0]));
      for (int i = 0; i < Config::atoms; ++i) {
        tma::load_async(shared.x[at.stage][i], p.x, full,
                        {.r = tile.row * Config::atoms + i, .c = k});
      }
      tma::load_async_multicast(shared.weight[at.stage][rank], p.weight, full,
                                Config::place_of_weight(tile.column, k, rank),
                                (1 << Config::blocks) - 1);
    }
  }
}

// One thread: what comes and goes through the subtiles of a consumer.
template <class Config>
class epilogue_copies {
 public:
  KITTENS_DEVICE epilogue_copies(const linear_gelu_arguments<Config>& p,
                                 linear_gelu_shared<Config>& shared, int w)
      : p(p), shared(shared), w(w) {}

  KITTENS_DEVICE void run(const block_tile<Config>& tile) {
    if constexpr (Config::backward) {
      bring_hidden(tile);
      take_gradient(tile);
    } else {
      take_both(tile);
    }
  }

 private:
  const linear_gelu_arguments<Config>& p;
  linear_gelu_shared<Config>& shared;
  const int w;
  uint32_t phase = 0;

  // Of pairs of subtiles, hidden's and activated's, one is filled while the other leaves.
  KITTENS_DEVICE void take_both(const block_tile<Config>& tile) {
    for (int number = 0; number < Config::subtiles; ++number) {
      const int first = number % 2 * 2;
      wait(shared.written[w][first], number / 2);
      if (p.keeps_hidden) {
        tma::store_async(p.hidden, shared.subtiles[w][first], tile.place(number));
      }
      tma::store_async(p.result, shared.subtiles[w][first + 1], tile.place(number));
      tma::store_commit_group();
      tma::store_async_read_wait<0>();
      arrive(shared.there[w][first]);
    }
  }
  KITTENS_DEVICE void bring_hidden(const block_tile<Config>& tile) {
    for (int number = 0; number < Config::subtiles; ++number) {
      semaphore& there = shared.there[w][number];
      expect_bytes(there, sizeof(typename Config::subtile));
      tma::load_async(shared.subtiles[w][number], p.hidden, there, tile.place(number));
    }
  }
  KITTENS_DEVICE void take_gradient(const block_tile<Config>& tile) {
    for (int number = 0; number < Config::subtiles; ++number) {
      wait(shared.written[w][number], phase);
      tma::store_async(p.result, shared.subtiles[w][number], tile.place(number));
      tma::store_commit_group();
    }
    tma::store_async_read_wait<0>();
    wait(shared.read[w], phase);
    phase ^= 1;
  }
};

}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
