// linear for every architecture since sm_80, by cp.async and mma.sync: the same function as
// linear.cuh, of the same groups, steps and sums (linear_pass.cuh).
//
// A lane's part of a step are 16 bytes of each of some rows of the weight, and of x the same
// columns. Which columns of a product of 16 these are is free, as long as x and the weight agree.
// So each lane loads what it multiplies itself: no lane waits for another but at the end of a pass,
// nothing is swizzled or rearranged, and no access has a bank conflict. A warp's load takes 64
// bytes of each of 8 rows. The weight comes from memory through a ring in shared memory, and x with
// it.
//
// Tiles of a pass, warps and stages: linear_forms.cuh.
#pragma once

#include "kernels/linear/linear_forms.cuh"
#include "kernels/linear/linear_pass.cuh"
#include "kernels/linear/linear_weights.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class T, bool Gated, int SharedKb = kLinearSharedKb>
struct linear_generic_config
    : linear_pass_config<T, linear_form_of<linear_plain<T>>(SharedKb, 2).tiles, Gated,
                         linear_form_of<linear_plain<T>>(SharedKb, 2).warps,
                         /*Step=*/4 * linear_plain<T>::lane_cols> {
  static constexpr linear_form form = linear_form_of<linear_plain<T>>(SharedKb, 2);
  using weight = linear_plain<T>;
  using weight_factor = rt<T, kGroup, linear_generic_config::step>;
  static constexpr int lane_cols = weight::lane_cols;  // of a step
  static constexpr int stages = form.stages;

  KITTENS_INLINE static constexpr int norm_column(int i, int lane) {
    return lane % 4 * lane_cols + 2 * i;
  }
};

struct linear_generic_arguments : linear_arguments {
  int64_t x_stride;       // from row to row, in elements
  int64_t weight_stride;  // the same, in bytes
  int weight_bytes;       // of a row
};

// 16 rows: of lane l, row l / 4, and the one 8 further.
using linear_rows = uint4[2][kWarp];

template <class Config>
struct linear_generic_stage {
  linear_rows rows[Config::tiles + 1];  // of the weight; behind them, of x
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
                                  const linear_generic_arguments& p,
                                  const block_groups<Config>& mine)
      : ring_(shared.stage[arch::warp_id()]), p_(p), mine_(mine), lane_(arch::lane_id()) {
    if constexpr (Config::weight_is_constant) {
      fill_around_the_wait();
    } else {
      for (int i = 0; i < Config::stages; ++i) request(i);
    }
  }

  KITTENS_DEVICE void take(linear_factors<Config>& factors, int tiles) {
    arch::cp_async_wait<Config::stages - 1>();
    const linear_generic_stage<Config>& stage = ring_[at_.stage];
    load_rows(factors.x, stage.rows[Config::tiles]);
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      if (i < tiles) load_rows(factors.weight[i], stage.rows[i]);
    }
    request(at_.stage);
    at_.advance();
  }

 private:
  // The first steps: of the weight, and of x when the kernel in front, which may write it, has
  // ended.
  KITTENS_DEVICE void fill_around_the_wait() {
    for (int i = 0; i < Config::stages; ++i) request</*WithX=*/false>(i);
    begin_dependent_grid();
    fill_x();
  }
  // x of the ring's first steps, through registers: copies are waited for in their order, so that
  // the first of x would be a wait for all of the weight's. All loads, and then all stores.
  KITTENS_DEVICE void fill_x() {
    uint4 pieces[Config::stages][2];
    step_walk<Config> at;
#pragma unroll
    for (auto& piece : pieces) {
      const bool is_whole = at.valid(p_, mine_) && bytes_left(at) >= int(sizeof(uint4));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool there = is_whole && x_row(half) < p_.rows;
        const auto* const from = reinterpret_cast<const uint4*>(x_at(at, half));
        piece[half] = there ? arch::load_global(from) : uint4{};
      }
      at.advance(p_);
    }
    at = {};
#pragma unroll
    for (int i = 0; i < Config::stages; ++i) {
      const int left = bytes_left(at);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4& to = ring_[i].rows[Config::tiles][half][lane_];
        if (0 < left && left < int(sizeof(uint4))) {
          store_some(reinterpret_cast<T*>(&to), reinterpret_cast<const T*>(x_at(at, half)),
                     x_row(half) < p_.rows ? left / int(sizeof(T)) : 0);
        } else {
          arch::store_shared(&to, pieces[i][half]);
        }
      }
      at.advance(p_);
    }
  }
  // This lane's rows of x, and of a step the first byte in a row and how many are left from there.
  KITTENS_DEVICE int x_row(int half) const { return lane_ / 4 + half * 8; }
  KITTENS_DEVICE int first_byte(const step_walk<Config>& at) const {
    return (at.step * 4 + lane_ % 4) * int(sizeof(uint4));
  }
  KITTENS_DEVICE int bytes_left(const step_walk<Config>& at) const {
    return p_.weight_bytes - first_byte(at);
  }
  KITTENS_DEVICE const uint8_t* x_at(const step_walk<Config>& at, int half) const {
    return static_cast<const uint8_t*>(p_.tensors.x) + first_byte(at) +
           x_row(half) * p_.x_stride * int64_t{sizeof(T)};
  }
  KITTENS_DEVICE void load_rows(rt<T, kGroup, Config::step>& to, const linear_rows& from) const {
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
  template <bool WithX = true>
  KITTENS_DEVICE void request(int stage) {
    if (next_.valid(p_, mine_)) load_stage<WithX>(ring_[stage]);
    arch::cp_async_commit();
    next_.advance(p_);
  }
  template <bool WithX>
  KITTENS_DEVICE void load_stage(linear_generic_stage<Config>& stage) const {
    const int left = bytes_left(next_);
    const auto* const weight_at =
        static_cast<const uint8_t*>(p_.tensors.weight) + first_byte(next_);
    const auto for_each_piece = [&](const auto& f) {
      for_each_feature(next_, [&](int tile, int half, int64_t row, bool there) {
        f(stage.rows[tile][half][lane_], weight_at + row * p_.weight_stride, there);
      });
      if constexpr (WithX) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          f(stage.rows[Config::tiles][half][lane_], x_at(next_, half), x_row(half) < p_.rows);
        }
      }
    };
    if (0 < left && left < int(sizeof(uint4))) {
      for_each_piece([&](uint4& to, const uint8_t* from, bool there) {
        store_some(reinterpret_cast<T*>(&to), reinterpret_cast<const T*>(from),
                   there ? left / int(sizeof(T)) : 0);
      });
      return;
    }
    for_each_piece([&](uint4& to, const uint8_t* from, bool there) {
      arch::cp_async<sizeof(to)>(&to, from, there && left > 0);
    });
  }
  KITTENS_DEVICE static void store_some(T* to, const T* from, int count) {
#pragma unroll 1
    for (int i = 0; i < Config::lane_cols; ++i) {
      arch::store_shared(to + i, i < count ? arch::load_global(from + i) : T(0.0f));
    }
  }
  // Calls f(tile, half, row, there) for this lane's rows of the weight in a step.
  template <class F>
  KITTENS_DEVICE void for_each_feature(const step_walk<Config>& at, const F& f) const {
    const int groups = mine_.count_of(at.pass),
              first = mine_.first_of(at.pass) * kGroup + lane_ / 4;
#pragma unroll
    for (int i = 0; i < Config::groups; ++i) {
      if (i == groups) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + i * kGroup + half * 8;
        const bool there = row < p_.out_features;
        const int tile = Config::tiles_of_group * i;
        f(tile, half, row, there);
        if constexpr (Config::gated) f(tile + 1, half, int64_t{p_.out_features} + row, there);
      }
    }
  }
  linear_generic_stage<Config> (&ring_)[Config::stages];
  const linear_generic_arguments& p_;
  const block_groups<Config>& mine_;
  const int lane_;
  step_walk<Config> next_;  // that is asked for next
  cursor<Config::stages> at_;
};

template <class Config>
__global__ void __launch_bounds__(Config::warps* kWarp,
                                  arch::min_blocks<Config::warps * kWarp, Config::form.blocks>)
    linear_generic(const __grid_constant__ linear_generic_arguments p) {
  if constexpr (!Config::weight_is_constant) begin_dependent_grid();
  auto& shared = *reinterpret_cast<linear_generic_shared<Config>*>(arch::dynamic_shared());
  const auto mine = block_groups<Config>::of(p);
  linear_copy_feed<Config> feed(shared, p, mine);
  multiply_groups<linear_sums<Config>>(shared.sums, p, mine, feed);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
