// linear for Hopper: y = x Wᵀ for a few rows of x, perhaps of their RMSNorm. Memory-bound: the
// weight is read once. (linear_pass.cuh)
//
// A step has 64 columns, and a block eight warps. A warp has a ring of its own, which one of its
// lanes fills by TMA with the warp's next steps, across passes: no warp waits for another but at
// the end of a pass. (One thread that fills a ring for all of them takes up to twice as long;
// benchmarks/linear.md.) While the kernel in front ends, each warp's first step of the weight is
// brought to the L2, where what that kernel may still write is seen; of a constant weight, the
// whole ring is filled.
//
// The weight, which is read once, is what the L2 evicts first: x, which each block reads, stays
// there, and so does the code of this kernel and of the next ones (16 rows: 3.92 TB/s, not 3.80, of
// 6144 × 4096).
//
// TMA brings the rows of x that there are. Of a box of 16 rows it would fill the others with zeros,
// which takes longer than to read them (one row of x, 4096 × 4096 with weight_is_constant: 3.3
// TB/s, not 3.65).
#pragma once

#include <array>

#include "kernels/linear/linear_pass.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

inline constexpr int kSharedBytes = 224 * 1024;  // a block has a multiprocessor

template <class T, int Tiles, bool Gated>
struct linear_config : linear_pass_config<T, Tiles, Gated, /*Warps=*/8, /*Step=*/64> {
  using weight = linear_plain<T>;
  using weight_factor = rt<T, kGroup, linear_config::step>;
  using x_tile = st<T, kRows, linear_config::step>;
  using weight_tile = st<T, kGroup, linear_config::step>;
  static constexpr int stage_bytes = int(sizeof(x_tile)) + Tiles * int(sizeof(weight_tile));
  static constexpr int stages =
      (kSharedBytes - linear_config::sum_bytes - 1024) / (linear_config::warps * stage_bytes);

  // Of pair i of a lane, in a row of x in registers.
  KITTENS_INLINE static constexpr int norm_column(int i, int lane) {
    return rt<T, kRows, linear_config::step>::row_vec::first(i, lane);
  }
};

template <class Config>
struct linear_tma_arguments : linear_arguments {
  tma_map<typename Config::x_tile> x;
  // Of the weight's tiles of one group, of two …, of a pass's: groups side by side come together.
  using weight_maps = std::array<tma_map<typename Config::weight_tile>, Config::groups>;
  weight_maps weight, up;  // up: as weight, where it is gated
};

template <class Config>
struct linear_stage {
  typename Config::weight_tile weight[Config::tiles_of_group][Config::groups];  // gate's, then up's
  typename Config::x_tile x;
};
template <class Config>
struct linear_shared {
  linear_stage<Config> stage[Config::warps][Config::stages];
  linear_sums_shared<Config> sums;
  semaphore full[Config::warps][Config::stages];
};

// A warp's ring, and what goes through it.
template <class Config>
class linear_tma_feed {
 public:
  KITTENS_DEVICE linear_tma_feed(linear_shared<Config>& shared,
                                 const linear_tma_arguments<Config>& p,
                                 const block_groups<Config>& mine)
      : ring_(shared.stage[arch::warp_id()]),
        full_(shared.full[arch::warp_id()]),
        p_(p),
        mine_(mine) {
    if constexpr (Config::weight_is_constant) {
      fill_around_the_wait();
    } else {
      for (int i = 0; i < Config::stages; ++i) {
        if (arch::lane_id() == 0) init_semaphore(full_[i], 1);
        request(i);
      }
    }
#pragma unroll 1
    for (int i = 0; i < Config::stages; ++i) {  // while what has been asked for comes
      clear_rows(ring_[i].x, p.rows, arch::lane_id(), kWarp);
    }
    arch::sync_warp();
  }

  KITTENS_DEVICE void take(linear_factors<Config>& factors, int tiles) {
    linear_stage<Config>& stage = ring_[at_.stage];
    wait(full_[at_.stage], at_.phase);
    load(factors.x, stage.x);
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      constexpr int kOfGroup = Config::tiles_of_group;
      if (i < tiles) load(factors.weight[i], stage.weight[i % kOfGroup][i / kOfGroup]);
    }
    arch::fence_async_proxy();  // the copy that comes next writes what has been read
    arch::sync_warp();
    request(at_.stage);
    at_.advance();
  }

 private:
  // The first steps: of the weight, and of x when the kernel in front, which may write it, has
  // ended.
  KITTENS_DEVICE void fill_around_the_wait() {
    step_walk<Config> of_x;
    for (int i = 0; i < Config::stages; ++i) {
      if (arch::lane_id() == 0) init_semaphore(full_[i], 1);
      if (arch::lane_id() == 0 && next_.valid(p_, mine_)) load_weight(ring_[i], full_[i]);
      next_.advance(p_);
    }
    begin_dependent_grid();
    for (int i = 0; i < Config::stages; ++i) {
      if (arch::lane_id() == 0 && of_x.valid(p_, mine_)) load_x(ring_[i], full_[i], of_x.step);
      of_x.advance(p_);
    }
  }
  // Has one lane load the next step, if there is one.
  KITTENS_DEVICE void request(int stage) {
    if (arch::lane_id() == 0 && next_.valid(p_, mine_)) {
      load_weight(ring_[stage], full_[stage]);
      load_x(ring_[stage], full_[stage], next_.step);
    }
    next_.advance(p_);
  }
  // Of the next step, of whose x the semaphore expects the bytes too.
  KITTENS_DEVICE void load_weight(linear_stage<Config>& stage, semaphore& full) const {
    const int groups = mine_.count_of(next_.pass), first = mine_.first_of(next_.pass);
    expect_bytes(full,
                 p_.rows * tma::bytes_of_row<typename Config::x_tile> +
                     groups * Config::tiles_of_group * tma::bytes<typename Config::weight_tile>);
    const coord at{.r = first, .c = next_.step};
    tma::load_async_evict_first(stage.weight[0][0], p_.weight[groups - 1], full, at);
    if constexpr (Config::gated) {
      tma::load_async_evict_first(stage.weight[1][0], p_.up[groups - 1], full, at);
    }
  }
  KITTENS_DEVICE void load_x(linear_stage<Config>& stage, semaphore& full, int step) const {
    tma::load_async(stage.x, p_.x, full, {.c = step});
  }

  linear_stage<Config> (&ring_)[Config::stages];
  semaphore (&full_)[Config::stages];
  const linear_tma_arguments<Config>& p_;
  const block_groups<Config>& mine_;
  step_walk<Config> next_;
  cursor<Config::stages> at_;
};

// Reads nothing: what it asks for may be written yet.
template <class Config>
KITTENS_DEVICE void prefetch_first_step(const linear_tma_arguments<Config>& p,
                                        const block_groups<Config>& mine) {
  const step_walk<Config> at;
  if (arch::lane_id() != 0 || !at.valid(p, mine)) return;
  const int groups = mine.count_of(at.pass);
  const coord place{.r = mine.first_of(at.pass), .c = at.step};
  tma::prefetch(p.weight[groups - 1], place);
  if constexpr (Config::gated) tma::prefetch(p.up[groups - 1], place);
}

template <class Config>
__global__ __launch_bounds__(Config::warps* kWarp, 1) void linear(
    const __grid_constant__ linear_tma_arguments<Config> p) {
  const auto mine = block_groups<Config>::of(p);
  if constexpr (!Config::weight_is_constant) {
    prefetch_first_step(p, mine);
    begin_dependent_grid();
  }
  auto& shared = *reinterpret_cast<linear_shared<Config>*>(arch::dynamic_shared());
  linear_tma_feed<Config> feed(shared, p, mine);
  multiply_groups<linear_sums<Config>>(shared.sums, p, mine, feed);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
