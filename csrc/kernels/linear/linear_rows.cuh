// linear for Hopper, 17 to 64 rows of x: y = x Wᵀ by wgmma, x its left factor from registers, 16
// rows a warp. Memory-bound as with fewer rows: the weight is read once.
//
//   group    16 rows of the weight, columns of y; gated: 16 of gate and 16 of up
//   block    some groups side by side, and all of their columns: no sum is shared by blocks
//   pass     the groups of a block that are computed at once, while x is read once
//   step     128 columns of x and of the pass's rows of the weight: a stage of a ring
//
// x is as many bytes as up to 64 rows of the weight, and each block reads all of it from the L2,
// once a pass: so a pass has up to 128 rows of the weight. Four warps fill the ring by TMA; each of
// two warpgroups multiplies each step with its half of the pass's tiles.
//
// Code is kept short, in loops: it comes from memory, behind the weight (benchmarks/linear.md).
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear_rows_producer.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

// One of the warps that multiply: 16 rows of x, and the tiles of its warpgroup.
template <class Config>
class linear_rows_consumer {
 public:
  KITTENS_DEVICE linear_rows_consumer(linear_rows_shared<Config>& shared,
                                      const linear_rows_arguments<Config>& p,
                                      const rows_part<Config>& mine)
      : shared_(shared), p_(p), mine_(mine) {}

  // What no copy brings becomes zeros: of x the rows that there are not, and of a stage the tiles
  // that the pass which fills it first has no groups for. Later ones have no more.
  KITTENS_DEVICE void begin() {
    constexpr int kThreads = Config::warps * kWarp;
    for (int i = 0; i < Config::stages && i < mine_.passes * p_.steps; ++i) {
      linear_rows_stage<Config>& stage = shared_.stage[i];
      const int tiles = mine_.count_of(i / p_.steps) * (p_.gated ? 2 : 1);
      for (int c = 0; c < Config::chunks; ++c) {
        clear_rows(stage.x[c], p_.rows, arch::thread_id(), kThreads);
        for (int tile = tiles; tile < Config::block_tiles; ++tile) {
          clear_rows(stage.weight[c][tile], 0, arch::thread_id(), kThreads);
        }
      }
    }
    arch::fence_async_proxy();  // wgmma reads the weight
    group<Config::warps>::sync(1);
  }
  KITTENS_DEVICE void run() {
    for (int pass = 0; pass < mine_.passes; ++pass) {
      multiply(pass);
      share(pass);
      if (p_.tensors.norm_weight != nullptr && pass == 0) find_scale();
      write(pass);
    }
  }

 private:
  using T = typename Config::type;
  using x_tile = rt<T, kRows, Config::chunk>;

  KITTENS_DEVICE static int row_tile() { return arch::warp_id() % 4; }
  KITTENS_DEVICE static int first_tile() { return arch::warp_id() / 4 * Config::tiles; }
  KITTENS_DEVICE bool has_rows() const { return row_tile() * kRows < p_.rows; }

  KITTENS_DEVICE void multiply(int pass) {
    const bool normalized = p_.tensors.norm_weight != nullptr;
    zero(sum_);
#pragma unroll 1
    for (int step = 0; step < p_.steps; ++step, at_.advance()) {
      x_tile x[Config::chunks];
      linear_rows_stage<Config>& stage = shared_.stage[at_.stage];
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) {
        if (normalized) norm_[c].load_weight(of_norm(), step * Config::chunks + c);
      }
      shared_.steps.wait_full(at_);
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) {
        zero(x[c]);
        if (!has_rows()) continue;
        load(x[c], stage.x_rows(c, row_tile()));
        if (!normalized) continue;
        if (pass == 0) norm_[c].add_squares(x[c]);
        norm_[c].multiply(x[c]);
      }
      warpgroup::mma_fence();
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) {
        const typename Config::weight_tile weight{stage.weight[c][first_tile()].data};
        warpgroup::mma_ABt(sum_, x[c], weight);
      }
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait<0>();
      shared_.steps.release_after_loads(at_);
    }
  }
  // linear_norm takes the arguments of the other forms.
  KITTENS_DEVICE linear_arguments of_norm() const {
    return {.tensors = p_.tensors, .in_features = p_.in_features};
  }

  // Puts this warp's sums where its lanes find them by rows. (Since they read those of the pass
  // before, they have met at each step.)
  KITTENS_DEVICE void share(int pass) {
    const int warp = arch::warp_id();
#pragma unroll
    for (int t = 0; t < Config::tiles; ++t) {
      rt_fl<kRows, kGroup> tile;
#pragma unroll
      for (int i = 0; i < 8; ++i) tile.data[0][i] = sum_.data[0][8 * t + i];
      store_unfenced(shared_.sums[warp][t], tile);
    }
    if (p_.tensors.norm_weight != nullptr && pass == 0) share_squares();
    arch::sync_warp();
  }
  KITTENS_DEVICE void share_squares() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) sum += norm_[c].squares[i];
      sum += arch::shuffle_xor(sum, 1);
      sum += arch::shuffle_xor(sum, 2);
      const int lane = arch::lane_id();
      if (lane % 4 == 0) {
        arch::store_shared(&shared_.squares[arch::warp_id()][lane / 4 + 8 * i], sum);
      }
    }
  }
  // 1 / rms of each row.
  KITTENS_DEVICE void find_scale() {
    const int warp = arch::warp_id(), row = arch::lane_id();
    if (row < kRows) {
      const float sum = arch::load_shared(&shared_.squares[warp][row]);
      const float scale = arch::rsqrt_approx(sum / float(p_.in_features) + p_.norm_eps);
      arch::store_shared(&shared_.scale[warp][row], scale);
    }
    arch::sync_warp();
  }

  // Four columns of a row.
  struct quad {
    float of[4];
  };
  // Of a tile's sums, with their scale and bias.
  KITTENS_DEVICE quad product_of(int tile, int row, int col, int64_t first, int left) const {
    const float* const from = &shared_.sums[arch::warp_id()][tile](row, col);
    const float4 sum = arch::load_shared(reinterpret_cast<const float4*>(from));
    quad y{{sum.x, sum.y, sum.z, sum.w}};
    const bool normalized = p_.tensors.norm_weight != nullptr;
    const float scale = normalized ? arch::load_shared(&shared_.scale[arch::warp_id()][row]) : 1.0f;
    quad bias{};
    if (p_.tensors.bias != nullptr) bias = load_quad(p_.tensors.bias, first, left);
#pragma unroll
    for (int i = 0; i < 4; ++i) y.of[i] = y.of[i] * scale + bias.of[i];
    return y;
  }
  KITTENS_DEVICE quad load_quad(const void* from, int64_t at, int left) const {
    const T* const first = static_cast<const T*>(from) + at;
    quad result{};
    if (p_.by_quads) {
      const uint2 words = arch::load_global(reinterpret_cast<const uint2*>(first));
      unpack<T>(result.of[0], result.of[1], words.x);
      unpack<T>(result.of[2], result.of[3], words.y);
      return result;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) result.of[i] = convert<float>(arch::load_global(first + i));
    }
    return result;
  }
  KITTENS_DEVICE void store_quad(int64_t at, const quad& y, int left) const {
    T* const first = static_cast<T*>(p_.tensors.y) + at;
    if (p_.by_quads) {
      const uint2 words{pack<T>(y.of[0], y.of[1]), pack<T>(y.of[2], y.of[3])};
      arch::store_global(reinterpret_cast<uint2*>(first), words);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) arch::store_global(first + i, convert<T>(y.of[i]));
    }
  }
  // The columns of y of this warp's rows.
  KITTENS_DEVICE void write(int pass) {
    const int tiles_of_group = p_.gated ? 2 : 1, lane = arch::lane_id();
    const int first = first_tile() / tiles_of_group, most = Config::tiles / tiles_of_group;
    const int there_are = mine_.count_of(pass) - first;
    const int groups = has_rows() ? (there_are < most ? there_are : most) : 0;
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const int col = lane % 4 * 4;
      const int feature = (mine_.first_of(pass) + first + group) * kGroup + col;
      const int left = p_.out_features - feature;
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const int row = half * 8 + lane / 4, tile = group * tiles_of_group;
        if (row_tile() * kRows + row >= p_.rows || left <= 0) continue;
        quad y = product_of(tile, row, col, feature, left);
        if (p_.gated) {
          const quad up = product_of(tile + 1, row, col, int64_t{p_.out_features} + feature, left);
#pragma unroll
          for (int i = 0; i < 4; ++i) y.of[i] = y.of[i] / (1.0f + expf(-y.of[i])) * up.of[i];
        }
        const int64_t at = int64_t{row_tile() * kRows + row} * p_.out_features + feature;
        if (p_.tensors.residual != nullptr) {
          const quad residual = load_quad(p_.tensors.residual, at, left);
#pragma unroll
          for (int i = 0; i < 4; ++i) y.of[i] += residual.of[i];
        }
        store_quad(at, y, left);
      }
    }
  }

  linear_rows_shared<Config>& shared_;
  const linear_rows_arguments<Config>& p_;
  const rows_part<Config>& mine_;
  cursor<Config::stages> at_;
  rt_fl<kRows, kGroup * Config::tiles> sum_;
  linear_norm<Config> norm_[Config::chunks];
};

template <class Config>
__global__ __launch_bounds__(Config::threads, 1) void linear_rows(
    const __grid_constant__ linear_rows_arguments<Config> p) {
  auto& shared = *reinterpret_cast<linear_rows_shared<Config>*>(arch::dynamic_shared());
  const auto mine = rows_part<Config>::of(p);
  if (arch::thread_id() == 0) shared.steps.init(Config::warps, Config::producers);
  arch::sync_block();
  if (arch::warp_id() >= Config::warps) {
    linear_rows_producer<Config> producer(shared, p, mine);
    if (arch::lane_id() == 0) producer.begin();
    arch::sync_warp();
    begin_dependent_grid();
    if (arch::lane_id() == 0) producer.run();
  } else {
    linear_rows_consumer<Config> consumer(shared, p, mine);
    consumer.begin();
    begin_dependent_grid();
    consumer.run();
  }
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
