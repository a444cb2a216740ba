// linear for every architecture since sm_80, by cp.async and mma.sync: the same function as
// linear.cuh, of the same groups, steps and sums. (linear_pass.cuh)
//
// A lane's part of a step are 16 bytes of each of some rows, 8 columns side by side: which four
// lanes take as columns 2 l, 2 l + 1, 8 + 2 l, 9 + 2 l of two products of 16 is free, as long as x
// and the weight agree. So each lane loads what it multiplies itself: no lane waits for another but
// at the end of a pass, nothing is swizzled or rearranged, and no access has a bank conflict. A
// warp's load takes 64 bytes of each of 8 rows.
//
// A step has 32 columns, and a block four warps, so that a ring is deep in the shared memory that
// every architecture has; two blocks where a multiprocessor has that twice.
#pragma once

#include "kernels/linear/linear_pass.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class T, int Tiles, bool Gated>
struct linear_generic_config : linear_pass_config<T, Tiles, Gated, /*Warps=*/4, /*Step=*/32> {
  static constexpr int rows = kRows * (1 + Tiles);  // of x and of the weight
  static constexpr int lane_cols = linear_generic_config::step / 4;
  static_assert(lane_cols * sizeof(T) == sizeof(uint4));
  static constexpr int stage_bytes = rows * linear_generic_config::step * int(sizeof(T));
  static constexpr int stages = (kLinearGenericSharedBytes - linear_generic_config::sum_bytes -
                                 int(sizeof(float)) * linear_generic_config::warps * kRows) /
                                (linear_generic_config::warps * stage_bytes);

  KITTENS_INLINE static constexpr int norm_column(int i, int lane) {
    return lane % 4 * lane_cols + 2 * i;
  }
};

template <class Config>
struct linear_generic_arguments : linear_arguments {
  int64_t x_stride, weight_stride;  // from row to row, in elements
};

// 16 rows: of lane l, row l / 4, and the one 8 further.
using linear_rows = uint4[2][kWarp];

template <class Config>
struct linear_generic_stage {
  linear_rows weight[Config::tiles], x;
};
template <class Config>
struct linear_generic_shared {
  linear_generic_stage<Config> stage[Config::warps][Config::stages];
  linear_sums_shared<Config> sums;
};

// A lane's part of a warp's ring, and what goes through it.
template <class Config>
class linear_copy_feed {
  using T = typename Config::type;

 public:
  KITTENS_DEVICE linear_copy_feed(linear_generic_shared<Config>& shared,
                                  const linear_generic_arguments<Config>& p,
                                  const block_groups<Config>& mine)
      : ring_(shared.stage[arch::warp_id()]), p_(p), mine_(mine), lane_(arch::lane_id()) {
    for (int i = 0; i < Config::stages; ++i) request(i);
  }

  KITTENS_DEVICE void take(linear_factors<Config>& factors, int tiles) {
    arch::cp_async_wait<Config::stages - 1>();
    const linear_generic_stage<Config>& stage = ring_[at_.stage];
    load_rows(factors.x, stage.x);
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      if (i < tiles) load_rows(factors.weight[i], stage.weight[i]);
    }
    request(at_.stage);
    at_.advance();
  }

 private:
  template <class Rows>
  KITTENS_DEVICE void load_rows(Rows& to, const linear_rows& from) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 part = arch::load_shared(&from[half][lane_]);
      const uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) to.data[0][2 * i + half] = words[i];
    }
  }

  // Starts the copies of the next step, if there is one. One group, of nothing too: waits count
  // groups.
  KITTENS_DEVICE void request(int stage) {
    if (next_.valid(p_, mine_)) load_stage(ring_[stage]);
    arch::cp_async_commit();
    next_.advance(p_);
  }
  KITTENS_DEVICE void load_stage(linear_generic_stage<Config>& stage) const {
    const int col = next_.step * Config::step + lane_ % 4 * Config::lane_cols;
    const int left = p_.in_features - col;
    if (left >= Config::lane_cols || left <= 0) {
      for_each_row(stage, col, [&](uint4& to, const T* from, bool there) {
        arch::cp_async<sizeof(to)>(&to, from, there && left > 0);
      });
    } else {  // the end of rows that are no multiple of 16 bytes
      for_each_row(stage, col, [&](uint4& to, const T* from, bool there) {
        store_some(reinterpret_cast<T*>(&to), from, there ? left : 0);
      });
    }
  }
  KITTENS_DEVICE static void store_some(T* to, const T* from, int count) {
#pragma unroll 1
    for (int i = 0; i < Config::lane_cols; ++i) {
      arch::store_shared(to + i, i < count ? arch::load_global(from + i) : T(0.0f));
    }
  }
  // Calls f(to, from, there) for this lane's part of each row of a stage.
  template <class F>
  KITTENS_DEVICE void for_each_row(linear_generic_stage<Config>& stage, int col, const F& f) const {
    const int groups = mine_.count_of(next_.pass), first = mine_.first_of(next_.pass) * kGroup;
    const int row = lane_ / 4;
    const auto both = [&](linear_rows& to, const void* data, int64_t stride, int from, int count) {
      const T* const at = static_cast<const T*>(data) + (from + row) * stride + col;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        f(to[half][lane_], at + half * 8 * stride, row + half * 8 < count);
      }
    };
#pragma unroll
    for (int i = 0; i < Config::groups; ++i) {
      if (i == groups) break;
      const int from = first + i * kGroup, count = p_.out_features - from;
      linear_rows* const to = &stage.weight[Config::tiles_of_group * i];
      both(to[0], p_.tensors.weight, p_.weight_stride, from, count);
      if constexpr (Config::gated) {
        both(to[1], p_.tensors.weight, p_.weight_stride, p_.out_features + from, count);
      }
    }
    both(stage.x, p_.tensors.x, p_.x_stride, 0, p_.rows);
  }

  linear_generic_stage<Config> (&ring_)[Config::stages];
  const linear_generic_arguments<Config>& p_;
  const block_groups<Config>& mine_;
  const int lane_;
  step_walk<Config> next_;
  cursor<Config::stages> at_;
};

template <class Config>
__global__ void __launch_bounds__(Config::warps* kWarp, arch::min_blocks<Config::warps * kWarp, 2>)
    linear_generic(const __grid_constant__ linear_generic_arguments<Config> p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<linear_generic_shared<Config>*>(arch::dynamic_shared());
  const auto mine = block_groups<Config>::of(p);
  linear_copy_feed<Config> feed(shared, p, mine);
  multiply_groups(shared.sums, p, mine, feed);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
