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

#include "kernels/linear/linear_pass.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

inline constexpr int kRowsSharedBytes =
    224 * 1024;  // a block has a multiprocessor; of its big parts

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
  // its x, too. Tiles of groups that there are not lie behind the last row, where they read as
  // zero. A row's chunks are asked for one after the other, which memory likes.
  KITTENS_DEVICE void load_weight(int stage) {
    semaphore& full = shared_.steps.full[stage];
    constexpr int kTiles = Config::block_tiles / Config::producers;
    expect_bytes(full, Config::chunks * (kTiles * tma::bytes<typename Config::box> +
                                         (has_x() ? tma::bytes<typename Config::x_box> : 0)));
    const int first = mine_.first_of(next_.pass), count = mine_.count_of(next_.pass);
    const auto& map = is_up() ? p_.up : p_.weight;
#pragma unroll 1
    for (int tile = producer_; tile < Config::block_tiles; tile += Config::producers) {
      const int group = p_.gated ? tile / 2 : tile;
      const int row = group < count ? first + group : p_.groups;
#pragma unroll
      for (int c = 0; c < Config::chunks; ++c) {
        tma::load_async(shared_.stage[stage].weight[c][tile], map, full,
                        {.r = row, .c = next_.step * Config::chunks + c});
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

// One of the warps that multiply: 16 rows of x, and the tiles of its warpgroup.
template <class Config>
class linear_rows_consumer {
 public:
  KITTENS_DEVICE linear_rows_consumer(linear_rows_shared<Config>& shared,
                                      const linear_rows_arguments<Config>& p,
                                      const rows_part<Config>& mine)
      : shared_(shared), p_(p), mine_(mine) {}

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
    begin_dependent_grid();
    linear_rows_consumer<Config>(shared, p, mine).run();
  }
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
