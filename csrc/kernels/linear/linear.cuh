// linear: y = x Wᵀ for a few rows of x. Memory-bound: the weight is read once.
//
//   group    16 rows of the weight, columns of y; gated: 16 of gate and 16 of up
//   block    some groups side by side, groups · b / blocks … groups · (b + 1) / blocks − 1, and all
//            of their columns: no sum is shared by blocks
//   pass     the groups of a block that are computed at once, while x is read once
//   step     64 columns of x and of the pass's rows of the weight: a stage of the ring
//
// One thread asks TMA for steps, across passes. Each of four warps multiplies every fourth step of
// a pass by mma.sync, with sums of its own; at its end they are added in order. So a column of y
// has the same bits wherever it stands.
//
// Before the kernel in front has ended, the first steps of the weight, which it does not write, are
// on their way to the L2; into shared memory they may not come yet, for it might.
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kGroup = kLinearGroup, kStep = 64, kConsumers = 4;
inline constexpr int kThreads = (kConsumers + 1) * kWarp;
// Two blocks to a multiprocessor, of which one waits for the other's end.
inline constexpr int kSharedBytes = 112 * 1024;

// T: bf16 or half. RowTiles: of 16 rows of x. Tiles: of 16 rows of the weight, of a pass. Gated:
// half of them are of gate, each before its own of up.
template <class T, int RowTiles, int Tiles, bool Gated>
struct linear_config {
  using type = T;
  static constexpr int row_tiles = RowTiles, tiles = Tiles;
  static constexpr bool gated = Gated;
  static constexpr int tiles_of_group = Gated ? 2 : 1, groups = Tiles / tiles_of_group;
  using x_tile = st<T, kBase * RowTiles, kStep>;
  using weight_tile = st<T, kGroup, kStep>;
  using sum_tile = st_fl<kBase * RowTiles, kGroup>;
  static constexpr int sum_bytes = kConsumers * Tiles * int(sizeof(sum_tile));
  static constexpr int stage_bytes = int(sizeof(x_tile)) + Tiles * int(sizeof(weight_tile));
  static constexpr int available = RowTiles == 1 ? kSharedBytes : 2 * kSharedBytes;
  static constexpr int stages = (available - sum_bytes - 1024) / stage_bytes;
};

template <class Config>
struct linear_arguments {
  tma_map<typename Config::x_tile> x;
  tma_map<typename Config::weight_tile> weight, up;  // up: as weight, where it is gated
  linear_tensors tensors;
  int rows, steps, out_features, groups;
};

template <class Config>
struct linear_stage {
  typename Config::weight_tile weight[Config::tiles];
  typename Config::x_tile x;
};
template <class Config>
struct linear_shared {
  linear_stage<Config> stage[Config::stages];
  typename Config::sum_tile sums[kConsumers][Config::tiles];
  ring<Config::stages> stages;
};

// The groups of a block, and the passes in which it has them.
template <class Config>
struct block_groups {
  int first, count;

  KITTENS_DEVICE static block_groups of(const linear_arguments<Config>& p) {
    const auto before = [&](int block) {
      return int(int64_t{p.groups} * block / arch::grid_x());
    };
    const int first = before(arch::block_x());
    return {first, before(arch::block_x() + 1) - first};
  }
  KITTENS_DEVICE int passes() const { return (count + Config::groups - 1) / Config::groups; }
  KITTENS_DEVICE int first_of(int pass) const { return first + pass * Config::groups; }
  KITTENS_DEVICE int count_of(int pass) const {
    const int left = count - pass * Config::groups;
    return left < Config::groups ? left : Config::groups;
  }
};

// f(tile of the stage, map, place) for each tile of the weight in a step of a pass.
template <class Config, class F>
KITTENS_DEVICE void for_each_tile(const linear_arguments<Config>& p,
                                  const block_groups<Config>& mine, int pass, int step, F f) {
  for (int i = 0; i < mine.count_of(pass); ++i) {
    const coord at{.r = mine.first_of(pass) + i, .c = step};
    f(Config::tiles_of_group * i, p.weight, at);
    if constexpr (Config::gated) f(2 * i + 1, p.up, at);
  }
}

// What the ring holds at first: as many steps as it has stages.
template <class Config>
KITTENS_DEVICE void prefetch_weights(const linear_arguments<Config>& p, const block_groups<Config>& mine) {
  tma::prefetch_map(p.x);
  for (int i = 0; i < Config::stages && i < mine.passes() * p.steps; ++i) {
    for_each_tile(p, mine, i / p.steps, i % p.steps,
                  [](int, const auto& map, const coord& at) { tma::prefetch(map, at); });
  }
}

template <class Config>
KITTENS_DEVICE void produce(linear_shared<Config>& shared, const linear_arguments<Config>& p,
                            const block_groups<Config>& mine) {
  cursor<Config::stages> at;
  for (int pass = 0; pass < mine.passes(); ++pass) {
    const int tiles = mine.count_of(pass) * Config::tiles_of_group;
    for (int step = 0; step < p.steps; ++step, at.advance()) {
      auto& stage = shared.stage[at.stage];
      semaphore& full = shared.stages.full[at.stage];
      shared.stages.wait_empty(at);
      shared.stages.expect(at, tma::bytes<typename Config::x_tile> +
                                   tiles * tma::bytes<typename Config::weight_tile>);
      for_each_tile(p, mine, pass, step, [&](int i, const auto& map, const coord& from) {
        tma::load_async(stage.weight[i], map, full, from);
      });
      tma::load_async(stage.x, p.x, full, {.c = step});
    }
  }
  arch::launch_dependents();  // now that all is on its way
}

// The sums of one warp in a pass: every fourth step, from its own on.
template <class Config>
struct linear_sums {
  using T = typename Config::type;
  rt_fl<kBase * Config::row_tiles, kGroup> of_tile[Config::tiles];

  // All warps wait for each step, and give its stage back: who did not would not know its phases
  // apart, of which one sees the parity alone.
  KITTENS_DEVICE void add_up(linear_shared<Config>& shared, cursor<Config::stages>& at, int steps,
                             int tiles) {
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) zero(of_tile[i]);
    for (int step = 0; step < steps; ++step, at.advance()) {
      shared.stages.wait_full(at);
      if (step % kConsumers == arch::warp_id()) add(shared.stage[at.stage], tiles);
      shared.stages.release_after_loads(at);
    }
  }
  KITTENS_DEVICE void add(const linear_stage<Config>& stage, int tiles) {
    rt<T, kBase * Config::row_tiles, kStep> x;
    load(x, stage.x);
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      if (i >= tiles) continue;
      rt<T, kGroup, kStep> weight;
      load(weight, stage.weight[i]);
      mma_ABt(of_tile[i], x, weight, of_tile[i]);
    }
  }
  KITTENS_DEVICE void share(linear_shared<Config>& shared, int tiles) const {
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      if (i < tiles) store(shared.sums[arch::warp_id()][i], of_tile[i]);
    }
  }
};

// An element of a product, of all warps' sums, with its bias.
template <class Config>
KITTENS_DEVICE float product_of(linear_shared<Config>& shared, const linear_arguments<Config>& p,
                                int tile, int row, int col, int feature) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kConsumers; ++w) {
    sum += arch::load_shared(&shared.sums[w][tile](row, col));
  }
  using T = typename Config::type;
  const auto* bias = static_cast<const T*>(p.tensors.bias);
  return bias == nullptr ? sum : sum + convert<float>(arch::load_global(bias + feature));
}

// Writes the columns of y of a pass, whose sums all consumers have shared.
template <class Config>
KITTENS_DEVICE void write_columns(linear_shared<Config>& shared, const linear_arguments<Config>& p,
                          int first_group, int groups) {
  using T = typename Config::type;
  const auto* residual = static_cast<const T*>(p.tensors.residual);
  const int cols = groups * kGroup;
  for (int i = arch::thread_id(); i < p.rows * cols; i += kConsumers * kWarp) {
    const int row = i / cols, group = i % cols / kGroup, col = i % kGroup;
    const int feature = (first_group + group) * kGroup + col;
    if (feature >= p.out_features) continue;
    const int tile = Config::tiles_of_group * group;
    float y = product_of(shared, p, tile, row, col, feature);
    if constexpr (Config::gated) {
      const float up = product_of(shared, p, tile + 1, row, col, p.out_features + feature);
      y = y / (1.0f + expf(-y)) * up;
    }
    const int64_t at = int64_t{row} * p.out_features + feature;
    if (residual != nullptr) y += convert<float>(arch::load_global(residual + at));
    arch::store_global(static_cast<T*>(p.tensors.y) + at, convert<T>(y));
  }
}

template <class Config>
__global__ __launch_bounds__(kThreads,
                             1) void linear(const __grid_constant__ linear_arguments<Config> p) {
  auto& shared = *reinterpret_cast<linear_shared<Config>*>(arch::dynamic_shared());
  const auto mine = block_groups<Config>::of(p);
  const bool produces = arch::warp_id() == kConsumers && arch::lane_id() == 0;
  if (produces) {
    prefetch_weights(p, mine);
    shared.stages.init(kConsumers);
  }
  arch::sync_block();
  arch::wait_prerequisites();
  if (arch::warp_id() == kConsumers) {
    if (produces) produce(shared, p, mine);
    return;
  }
  linear_sums<Config> sums;
  cursor<Config::stages> at;
  for (int pass = 0; pass < mine.passes(); ++pass) {
    const int groups = mine.count_of(pass), tiles = groups * Config::tiles_of_group;
    sums.add_up(shared, at, p.steps, tiles);
    sums.share(shared, tiles);
    group<kConsumers>::sync(1);
    write_columns(shared, p, mine.first_of(pass), groups);
    group<kConsumers>::sync(1);  // before the next pass's sums
  }
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
