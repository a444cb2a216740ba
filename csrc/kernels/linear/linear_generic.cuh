// linear for every architecture since sm_80, by cp.async and mma.sync: the same function as
// linear.cuh, of the same groups, steps and sums (linear_pass.cuh), also of weights of fewer bits
// (linear_weights.cuh).
//
// A lane's part of a step are 16 bytes of each of some rows of the weight, and of x the same
// columns. Which columns of a product of 16 these are is free, as long as x and the weight agree.
// So each lane loads what it multiplies itself: no lane waits for another but at the end of a pass,
// nothing is swizzled or rearranged, and no access has a bank conflict. A warp's load takes 64
// bytes of each of 8 rows.
//
// A pass has two tiles, and a block four warps, so that a ring has three to six stages in shared
// memory that every architecture has; two blocks where a multiprocessor has that twice. (Four tiles
// and three stages read x half as often, and take longer: benchmarks/linear.md.)
#pragma once

#include "kernels/linear/linear_pass.cuh"
#include "kernels/linear/linear_weights.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

// A lane's part of 16 rows of the weight: of row lane / 4, and of the one 8 further.
template <class T, class Weight>
struct linear_weight_factor {
  uint4 bytes[2];
  typename Weight::scale scale[2];
};
// Its lanes hold as columns of products what lies side by side.
template <class T, class Weight>
KITTENS_DEVICE auto tile_of(const linear_weight_factor<T, Weight>& factor) {
  constexpr int kPairs = Weight::lane_cols / 2;
  rt<T, kGroup, 4 * Weight::lane_cols> tile;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t pairs[kPairs];
    Weight::convert(pairs, factor.bytes[half], factor.scale[half]);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) tile.data[0][2 * i + half] = pairs[i];
  }
  return tile;
}

template <class T, bool Gated, class Weight = linear_plain<T>>
struct linear_generic_config
    : linear_pass_config<T, /*Tiles=*/2, Gated, /*Warps=*/4, /*Step=*/4 * Weight::lane_cols> {
  using weight = Weight;
  using weight_factor = linear_weight_factor<T, Weight>;
  static constexpr int lane_cols = Weight::lane_cols;                   // of a step
  static constexpr int pieces = lane_cols * sizeof(T) / sizeof(uint4);  // of a row of x, of a lane
  static constexpr int stages = pieces == 1 ? 6 : pieces == 2 ? 4 : 3;

  KITTENS_INLINE static constexpr int norm_column(int i, int lane) {
    return lane % 4 * lane_cols + 2 * i;
  }
};

struct linear_generic_arguments : linear_arguments {
  int64_t x_stride, weight_stride;  // from row to row, in bytes
  int weight_bytes;                 // of a row
  linear_groups weight_groups;
};

// 16 rows: of lane l, row l / 4, and the one 8 further.
using linear_rows = uint4[2][kWarp];

template <class Config>
struct linear_generic_stage {
  linear_rows weight[Config::tiles], x[Config::pieces];
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
  using weight = typename Config::weight;

 public:
  KITTENS_DEVICE linear_copy_feed(linear_generic_shared<Config>& shared,
                                  const linear_generic_arguments& p,
                                  const block_groups<Config>& mine)
      : ring_(shared.stage[arch::warp_id()]), p_(p), mine_(mine), lane_(arch::lane_id()) {
    for (int i = 0; i < Config::stages; ++i) request(i);
    load_scales();
  }

  KITTENS_DEVICE void take(linear_factors<Config>& factors, int tiles) {
    arch::cp_async_wait<Config::stages - 1>();
    const linear_generic_stage<Config>& stage = ring_[at_.stage];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < Config::pieces; ++i) {
        const uint4 piece = arch::load_shared(&stage.x[i][half][lane_]);
        const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int n = 0; n < 4; ++n) factors.x.data[0][2 * (4 * i + n) + half] = words[n];
      }
#pragma unroll
      for (int i = 0; i < Config::tiles; ++i) {
        if (i >= tiles) break;
        factors.weight[i].bytes[half] = arch::load_shared(&stage.weight[i][half][lane_]);
        factors.weight[i].scale[half] = scales_[i][half];
      }
    }
    request(at_.stage);
    at_.advance();
    now_.advance(p_);
    load_scales();
  }

 private:
  // Starts the copies of the next step, if there is one. One group, of nothing too: waits count
  // groups.
  KITTENS_DEVICE void request(int stage) {
    if (next_.valid(p_, mine_)) load_stage(ring_[stage]);
    arch::cp_async_commit();
    next_.advance(p_);
  }
  KITTENS_DEVICE void load_stage(linear_generic_stage<Config>& stage) const {
    if constexpr (weight::kRowsEndAnywhere) {
      const int left = p_.weight_bytes - first_byte(next_);
      if (0 < left && left < int(sizeof(uint4))) {
        for_each_piece(stage, [&](uint4& to, const uint8_t* from, bool there, int left) {
          store_some(to, from, there ? left : 0);
        });
        return;
      }
    }
    for_each_piece(stage, [&](uint4& to, const uint8_t* from, bool there, int left) {
      arch::cp_async<sizeof(to)>(&to, from, there && left > 0);
    });
  }
  // The end of a row.
  KITTENS_DEVICE static void store_some(uint4& to, const uint8_t* from, int bytes) {
#pragma unroll 1
    for (int i = 0; i < int(sizeof(to) / sizeof(T)); ++i) {
      const bool there = i * int(sizeof(T)) < bytes;
      arch::store_shared(reinterpret_cast<T*>(&to) + i,
                         there ? arch::load_global(reinterpret_cast<const T*>(from) + i) : T(0.0f));
    }
  }
  // This lane's first one in a row of the weight.
  KITTENS_DEVICE int first_byte(const step_walk<Config>& at) const {
    return (at.step * 4 + lane_ % 4) * int(sizeof(uint4));
  }
  KITTENS_DEVICE int first_feature(const step_walk<Config>& at) const {
    return mine_.first_of(at.pass) * kGroup + lane_ / 4;
  }
  // Calls f(to, from, there, left) for this lane's part of each row of a stage: `left`
  // bytes are there to the row's end.
  template <class F>
  KITTENS_DEVICE void for_each_piece(linear_generic_stage<Config>& stage, const F& f) const {
    const int byte = first_byte(next_), left = p_.weight_bytes - byte;
    const auto* const w = static_cast<const uint8_t*>(p_.tensors.weight) + byte;
    for_each_feature(next_, [&](int tile, int half, int64_t row, bool there) {
      f(stage.weight[tile][half][lane_], w + row * p_.weight_stride, there, left);
    });
#pragma unroll
    for (int i = 0; i < Config::pieces; ++i) {
      const int at = (next_.step * Config::step + lane_ % 4 * Config::lane_cols) * int(sizeof(T)) +
                     i * int(sizeof(uint4));
      const auto* const x = static_cast<const uint8_t*>(p_.tensors.x) + at;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane_ / 4 + half * 8;
        f(stage.x[i][half][lane_], x + row * p_.x_stride, row < p_.rows,
          p_.in_features * int(sizeof(T)) - at);
      }
    }
  }
  // Calls f(tile, half, row, there) for this lane's rows of the weight in a step.
  template <class F>
  KITTENS_DEVICE void for_each_feature(const step_walk<Config>& at, const F& f) const {
    const int groups = mine_.count_of(at.pass), first = first_feature(at);
#pragma unroll
    for (int i = 0; i < Config::groups; ++i) {
      if (i == groups) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + i * kGroup + half * 8;
        const bool there = row < p_.out_features;
        f(Config::tiles_of_group * i, half, row, there);
        if constexpr (Config::gated) f(2 * i + 1, half, int64_t{p_.out_features} + row, there);
      }
    }
  }
  // Those of the step that is taken next: they come while the one before is multiplied.
  KITTENS_DEVICE void load_scales() {
    if constexpr (weight::kGrouped) {
      if (!now_.valid(p_, mine_)) return;
      const int col = now_.step * Config::step + lane_ % 4 * Config::lane_cols;
      for_each_feature(now_, [&](int tile, int half, int64_t row, bool there) {
        scales_[tile][half].load(p_.tensors, p_.weight_groups, row, col,
                                 there && col < p_.in_features);
      });
    }
  }

  linear_generic_stage<Config> (&ring_)[Config::stages];
  const linear_generic_arguments& p_;
  const block_groups<Config>& mine_;
  const int lane_;
  step_walk<Config> next_, now_;  // that is asked for next, and taken next
  cursor<Config::stages> at_;
  typename weight::scale scales_[Config::tiles][2];
};

template <class Config>
__global__ void __launch_bounds__(Config::warps* kWarp, arch::min_blocks<Config::warps * kWarp, 2>)
    linear_generic(const __grid_constant__ linear_generic_arguments p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<linear_generic_shared<Config>*>(arch::dynamic_shared());
  const auto mine = block_groups<Config>::of(p);
  linear_copy_feed<Config> feed(shared, p, mine);
  multiply_groups(shared.sums, p, mine, feed);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
