// linear, 17 to 64 rows of x: what the kernel's warps share, and those of them that fill the ring.
// (linear_rows.cuh)
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear_pass.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

inline constexpr int kRowsSharedBytes = 224 * 1024;  // of its big parts: a block has all

// T: bf16 or half. XTiles: of 16 rows of x.
template <class T, int XTiles>
struct linear_rows_config {
  using type = T;
  static constexpr int warpgroups = 2, warps = 4 * warpgroups;
  static constexpr int producers = 4, threads = (warps + producers) * kWarp;
  static constexpr int tiles = 4, block_tiles = warpgroups * tiles;  // tiles: of a warpgroup
  static constexpr int chunks = 2, chunk = 64, step = chunk;  // of a step; step: linear_norm's
  using box = st<T, kGroup, chunk>;                           // what a copy brings of the weight
  using x_box = st<T, kRows * XTiles, chunk>;
  using weight_tile = tile_rows<st<T, kGroup * tiles, chunk>, kGroup * tiles>;
  using sum_tile = st_fl<kRows, kGroup>;
  static constexpr int stage_bytes = chunks * (block_tiles * int(sizeof(box)) + int(sizeof(x_box)));
  static constexpr int sum_bytes = warps * tiles * int(sizeof(sum_tile));
  static constexpr int stages = (kRowsSharedBytes - sum_bytes) / stage_bytes;

  KITTENS_INLINE static constexpr int norm_column(int i, int lane) {
    return rt<T, kRows, chunk>::row_vec::first(i, lane);
  }
};

template <class Config>
struct linear_rows_arguments {
  linear_tensors tensors;
  int rows, steps, in_features, out_features, groups;
  int groups_of_block, blocks_of_one_more;  // the first ones have one group more
  int passes, groups_of_pass;
  float norm_eps;
  bool gated, weight_is_constant;
  bool by_quads;  // whether four columns are neighbours at a multiple of their bytes
  tma_map<typename Config::x_box> x;
  tma_map<typename Config::box> weight, up;  // up: as weight, where it is gated
};

template <class Config>
struct linear_rows_stage {
  typename Config::box weight[Config::chunks][Config::block_tiles];
  typename Config::x_box x[Config::chunks];

  // Rows are one behind the other: 16 of x are such a box too.
  KITTENS_DEVICE const typename Config::box& x_rows(int chunk, int tile) const {
    return reinterpret_cast<const typename Config::box&>(
        x[chunk].data[tile * Config::box::num_elements]);
  }
};
template <class Config>
struct linear_rows_shared {
  linear_rows_stage<Config> stage[Config::stages];
  typename Config::sum_tile sums[Config::warps][Config::tiles];
  float squares[Config::warps][kRows], scale[Config::warps][kRows];
  ring<Config::stages> steps;
};

// The groups of a block, and the passes in which it has them.
template <class Config>
struct rows_part {
  int first, count, passes, groups_of_pass;

  KITTENS_DEVICE static rows_part of(const linear_rows_arguments<Config>& p) {
    const int block = arch::block_x(), more = p.blocks_of_one_more;
    return {.first = block * p.groups_of_block + (block < more ? block : more),
            .count = p.groups_of_block + (block < more ? 1 : 0),
            .passes = p.passes,
            .groups_of_pass = p.groups_of_pass};
  }
  KITTENS_DEVICE int first_of(int pass) const { return first + pass * groups_of_pass; }
  KITTENS_DEVICE int count_of(int pass) const {
    const int left = count - pass * groups_of_pass;
    return left < groups_of_pass ? left : groups_of_pass;
  }
};

// What a producer asks for: step after step, one pass after the other.
struct rows_walk {
  int pass = 0, step = 0;

  KITTENS_DEVICE void advance(int steps) {
    if (++step < steps) return;
    step = 0;
    ++pass;
  }
};

// One of the warps that fill the ring. A thread of it calls.
template <class Config>
class linear_rows_producer {
 public:
  KITTENS_DEVICE linear_rows_producer(linear_rows_shared<Config>& shared,
                                      const linear_rows_arguments<Config>& p,
                                      const rows_part<Config>& mine)
      : shared_(shared), p_(p), mine_(mine) {}

  // One thread, before the kernel in front has ended. The whole ring of a constant weight; of
  // another nothing is read: what it asks for may be written yet.
  KITTENS_DEVICE void begin() {
    if (p_.weight_is_constant) {
      for (; ahead_ < Config::stages && valid(next_); ++ahead_, next_.advance(p_.steps)) {
        load_weight(ahead_);
      }
    } else {
      prefetch_first_step();
    }
  }
  // And when it has.
  KITTENS_DEVICE void run() {
    rows_walk of_x;
    cursor<Config::stages> at;
    for (int i = 0; valid(of_x); ++i, of_x.advance(p_.steps), at.advance()) {
      if (i >= ahead_) {
        shared_.steps.wait_empty(at);
        load_weight(at.stage);
        next_.advance(p_.steps);
      }
      load_x(at.stage, of_x.step);
    }
  }

 private:
  KITTENS_DEVICE bool valid(const rows_walk& at) const { return at.pass < mine_.passes; }
  // Of the next step: this producer's tiles, every fourth one; the semaphore expects the bytes of
  // its x, too. (Tiles of groups that there are not, and rows of x, keep what they have: nobody
  // looks at their sums.) A row's chunks are asked for one after the other, which memory likes.
  KITTENS_DEVICE void load_weight(int stage) {
    semaphore& full = shared_.steps.full[stage];
    const int first = mine_.first_of(next_.pass);
    const int tiles = mine_.count_of(next_.pass) * (p_.gated ? 2 : 1);
    const int mine = (tiles - producer_ + Config::producers - 1) / Config::producers;
    expect_bytes(full, Config::chunks *
                           (mine * tma::bytes<typename Config::box> +
                            (has_x() ? p_.rows * tma::bytes_of_row<typename Config::x_box> : 0)));
    const auto& map = is_up() ? p_.up : p_.weight;
#pragma unroll 1
    for (int tile = producer_; tile < tiles; tile += Config::producers) {
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) {
        tma::load_async_evict_first(
            shared_.stage[stage].weight[c][tile], map, full,
            {.r = first + (p_.gated ? tile / 2 : tile), .c = next_.step * Config::chunks + c});
      }
    }
  }
  KITTENS_DEVICE bool is_up() const { return p_.gated && producer_ % 2 == 1; }
  KITTENS_DEVICE bool has_x() const { return producer_ == Config::producers - 1; }
  KITTENS_DEVICE void load_x(int stage, int step) {
    if (!has_x()) return;
#pragma unroll
    for (int c = 0; c < Config::chunks; ++c) {
      tma::load_async(shared_.stage[stage].x[c], p_.x, shared_.steps.full[stage],
                      {.c = step * Config::chunks + c});
    }
  }
  KITTENS_DEVICE void prefetch_first_step() const {
    const int groups = mine_.count_of(0), tiles = p_.gated ? 2 * groups : groups;
#pragma unroll 1
    for (int tile = producer_; tile < tiles; tile += Config::producers) {
      const int row = mine_.first + (p_.gated ? tile / 2 : tile);
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) {
        tma::prefetch(is_up() ? p_.up : p_.weight, {.r = row, .c = c});
      }
    }
  }

  linear_rows_shared<Config>& shared_;
  const linear_rows_arguments<Config>& p_;
  const rows_part<Config>& mine_;
  rows_walk next_;
  int producer_ = arch::warp_id() - Config::warps;
  int ahead_ = 0;  // steps whose weight was asked for before the wait
};

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
