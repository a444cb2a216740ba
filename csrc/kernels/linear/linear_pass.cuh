// linear: what its forms for Hopper and for every architecture share. Which groups and steps are
// whose, RMSNorm, sums, and their way to y.
//
//   group    16 rows of the weight, columns of y; gated: 16 of gate and 16 of up
//   block    some groups side by side, groups · b / blocks … groups · (b + 1) / blocks − 1, and all
//            of their columns: no sum is shared by blocks
//   pass     the groups of a block that are computed at once, while x is read once
//   step     some columns of x and of the pass's rows of the weight: a stage of a ring
//
// Each warp multiplies every warps-th step of a pass by mma.sync, with sums of its own; at its end
// they are added in order. So a column of y has the same bits wherever it stands.
//
// RMSNorm is x · g / rms(x), rms a number a row. So x · g is rounded to x's type and multiplied
// with the weight while each warp adds up the squares of its own steps' x, and sums are divided by
// rms at the end of the pass.
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_weights.cuh"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kGroup = kLinearGroup;
inline constexpr int kRows = kBase;  // of x: sums of those that do not exist are not looked at

// T: bf16 or half. Tiles: of 16 rows of the weight, of a pass. Gated: half of them are of gate,
// each before its own of up. Step: columns.
template <class T, int Tiles, bool Gated, int Warps, int Step>
struct linear_pass_config {
  using type = T;
  static constexpr int tiles = Tiles, warps = Warps, step = Step;
  static constexpr int row_halves = 2;  // of x, 8 rows each: at most
  static constexpr bool gated = Gated, weight_is_constant = false;
  static constexpr int tiles_of_group = Gated ? 2 : 1, groups = Tiles / tiles_of_group;
  using sum_tile = st_fl<kRows, kGroup>;
  // Of sums: two, where there is room, so that warps go on while some write the columns of y.
  static constexpr int sum_buffers = 1;
  static constexpr int sum_bytes = Warps * Tiles * int(sizeof(sum_tile));
};

// The same with a weight that the kernel in front does not write: it is asked for before that
// kernel has ended, and all else, x to begin with, behind it (linear_problem::weight_is_constant).
template <class Config>
struct of_constant_weight : Config {
  static constexpr bool weight_is_constant = true;
};

struct linear_arguments {
  linear_tensors tensors;
  int rows, steps, in_features, out_features, groups;
  float norm_eps;
};

// Of a pass, as warps hand them to each other.
template <class Config>
struct linear_sums_shared {
  typename Config::sum_tile of_warp[Config::sum_buffers][Config::warps][Config::tiles];
  float squares[Config::warps][kRows];  // of each row of x, of each warp's steps
};

// A step in registers.
template <class Config>
struct linear_factors {
  using T = typename Config::type;
  rt<T, kRows, Config::step> x;
  typename Config::weight_factor weight[Config::tiles];  // tiles, or what becomes one
};

// Rows of a tile in shared memory that no copy brings, `first` and those behind it, become zeros:
// nobody looks at their sums, but products read them. Of `threads` threads this is number `thread`.
template <shared_tile Tile>
KITTENS_DEVICE void clear_rows(Tile& tile, int first, int thread, int threads) {
  static_assert(Tile::chunks == 1, "rows lie one behind the other");
  constexpr int kRuns = Tile::cols * int(sizeof(typename Tile::dtype)) / int(sizeof(uint4));
#pragma unroll 1  // what is run once is short: it comes from memory, too
  for (int i = first * kRuns + thread; i < Tile::rows * kRuns; i += threads) {
    arch::store_shared(reinterpret_cast<uint4*>(tile.data) + i, uint4{});
  }
}

// The groups of a block, and the passes in which it has them.
template <class Config>
struct block_groups {
  int first, count;

  KITTENS_DEVICE static block_groups of(const linear_arguments& p) {
    const auto before = [&](int block) { return int(int64_t{p.groups} * block / arch::grid_x()); };
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

// The steps of a warp, one pass after the other.
template <class Config>
struct step_walk {
  int pass = 0, step = arch::warp_id();

  KITTENS_DEVICE bool valid(const linear_arguments& p, const block_groups<Config>& mine) const {
    return pass < mine.passes() && step < p.steps;
  }
  KITTENS_DEVICE void advance(const linear_arguments& p) {
    step += Config::warps;
    if (step < p.steps) return;
    step = arch::warp_id();
    ++pass;
  }
};

// What RMSNorm does to x: to both halves of its 16 rows, or the first one.
template <class Config, int RowHalves = 2>
struct linear_norm {
  using T = typename Config::type;
  using x_rows = rt<T, kRows, Config::step>;

  typename x_rows::row_vec weight;  // of a step's columns; behind the last 0
  float squares[2] = {0.0f, 0.0f};  // this lane's part of two rows' sums: lane / 4, and 8 further

  KITTENS_DEVICE void load_weight(const linear_arguments& p, int step) {
    const T* const from = static_cast<const T*>(p.tensors.norm_weight);
#pragma unroll
    for (int i = 0; i < weight.chunks; ++i) {
      const int col = step * Config::step + Config::norm_column(i, arch::lane_id());
      detail::run_access<T, 2>::load(weight.data[i], from + col, col < p.in_features);
    }
  }
  KITTENS_DEVICE void add_squares(const x_rows& x) {
#pragma unroll
    for (int t = 0; t < x.line_tiles; ++t) {
#pragma unroll
      for (int pair = 0; pair < x.kPairs; ++pair) {
        if (pair % 2 >= RowHalves) continue;
        float a, b;
        x.get(a, b, 0, t, pair);
        squares[pair % 2] = fmaf(a, a, fmaf(b, b, squares[pair % 2]));
      }
    }
  }
  // Pair by pair: by floats, as mul_col, the kernel would wait for it.
  KITTENS_DEVICE void multiply(x_rows& x) const {
#pragma unroll
    for (int t = 0; t < x.line_tiles; ++t) {
#pragma unroll
      for (int pair = 0; pair < x.kPairs; ++pair) {
        if (pair % 2 >= RowHalves) continue;
        uint32_t& word = x.data[0][t * x.kPairs + pair];
        word = multiply_pairs<T>(word, weight.data[2 * t + pair / 2].words[0]);
      }
    }
  }
  // Each row's sum of this warp.
  KITTENS_DEVICE void share(linear_sums_shared<Config>& shared) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = squares[i];
      sum += arch::shuffle_xor(sum, 1);
      sum += arch::shuffle_xor(sum, 2);
      const int row = arch::lane_id() / 4 + 8 * i;
      if (arch::lane_id() % 4 == 0) {
        arch::store_shared(&shared.squares[arch::warp_id()][row], sum);
      }
    }
  }
};

// 1 / rms of a row, of all warps' sums; 1 where x is taken as it is.
template <class Config>
KITTENS_DEVICE float scale_of(const linear_sums_shared<Config>& shared, const linear_arguments& p,
                              int row) {
  if (p.tensors.norm_weight == nullptr) return 1.0f;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < Config::warps; ++w) sum += arch::load_shared(&shared.squares[w][row]);
  return arch::rsqrt_approx(sum / float(p.in_features) + p.norm_eps);
}

// The sums of one warp in a pass.
template <class Config>
struct linear_sums {
  rt_fl<kRows, kGroup> of_tile[Config::tiles];

  KITTENS_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) zero(of_tile[i]);
  }
  KITTENS_DEVICE void add(const linear_factors<Config>& factors, int tiles) {
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      if (i < tiles) mma_ABt(of_tile[i], factors.x, factors.weight[i], of_tile[i]);
    }
  }
  KITTENS_DEVICE void share(typename Config::sum_tile (&to)[Config::tiles], int tiles) const {
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) {
      if (i < tiles) store(to[i], of_tile[i]);
    }
  }
};

// The epilogue of a pass: a thread writes in some rows of y a column of each group, or of every
// few. Nothing is left there to hide a latency: so what comes from memory comes while the pass is
// multiplied, and all sums of a row are on their way at once (6144 × 4096, 16 rows: 3.80 TB/s, not
// 3.65 element by element).
template <class Config>
class linear_epilogue {
  using T = typename Config::type;
  static constexpr int kThreads = Config::warps * kWarp, kMostRows = 8 * Config::row_halves;
  static constexpr int kRowThreads = kMostRows * kGroup;  // with one column of each group
  static constexpr int kSides = kThreads > kRowThreads ? kThreads / kRowThreads : 1;
  static constexpr int kRowsAtOnce = kThreads / kGroup / kSides;
  static constexpr int kTurns = (kMostRows + kRowsAtOnce - 1) / kRowsAtOnce;
  static constexpr int kTiles = Config::tiles_of_group;
  static constexpr int kGroups = (Config::groups + kSides - 1) / kSides;

 public:
  KITTENS_DEVICE linear_epilogue(const linear_arguments& p, const block_groups<Config>& mine,
                                 int pass)
      : p_(p), pass_(pass), groups_(mine.count_of(pass)), first_(mine.first_of(pass)) {
    int thread = arch::thread_id();
    if constexpr (Config::sum_buffers > 1) {  // while others go on, in turn
      thread = (thread + pass * kWarp) % kThreads;
    }
    col_ = thread % kGroup;
    row_ = thread / kGroup % kRowsAtOnce;
    side_ = thread / kGroup / kRowsAtOnce;
    load_of_columns();
    if (p.tensors.residual == nullptr) return;
    for_each([&](int turn, int i, int64_t at) {
      residual_[turn][i] = arch::load_global(static_cast<const T*>(p.tensors.residual) + at);
    });
  }

  // Of the sums that all warps have shared.
  KITTENS_DEVICE void write(linear_sums_shared<Config>& shared) const {
    auto& of_warp = shared.of_warp[pass_ % Config::sum_buffers];
    float sums[kTurns][kGroups * kTiles] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int row = row_of(turn);
      if (row >= p_.rows) break;
      const float scale = scale_of(shared, p_, row);
#pragma unroll
      for (int i = 0; i < kGroups * kTiles; ++i) {
        const int group = group_of(i / kTiles);
        const int tile = kTiles * (group < groups_ ? group : 0) + i % kTiles;
#pragma unroll
        for (int w = 0; w < Config::warps; ++w) {
          sums[turn][i] += arch::load_shared(&of_warp[w][tile](row, col_));
        }
        sums[turn][i] *= Config::weight::kRowScaled ? scale * scale_[i] : scale;
        if (p_.tensors.bias != nullptr) sums[turn][i] += convert<float>(bias_[i]);
      }
    }
    for_each([&](int turn, int i, int64_t at) {
      float y = sums[turn][kTiles * i];
      if constexpr (Config::gated) y = y / (1.0f + expf(-y)) * sums[turn][kTiles * i + 1];
      if (p_.tensors.residual != nullptr) y += convert<float>(residual_[turn][i]);
      arch::store_global(static_cast<T*>(p_.tensors.y) + at, convert<T>(y));
    });
  }

 private:
  KITTENS_DEVICE int row_of(int turn) const { return row_ + turn * kRowsAtOnce; }
  KITTENS_DEVICE int group_of(int i) const { return side_ + i * kSides; }
  KITTENS_DEVICE int feature_of(int i) const { return (first_ + group_of(i)) * kGroup + col_; }
  KITTENS_DEVICE bool has(int i) const {
    return group_of(i) < groups_ && feature_of(i) < p_.out_features;
  }
  // What its columns' rows of the weight are scaled by, and their bias.
  KITTENS_DEVICE void load_of_columns() {
    const auto* scales = static_cast<const float*>(p_.tensors.weight_scale);
    const auto* bias = static_cast<const T*>(p_.tensors.bias);
#pragma unroll
    for (int i = 0; i < kGroups * kTiles; ++i) {
      if (!has(i / kTiles)) continue;
      const int row = i % kTiles * p_.out_features + feature_of(i / kTiles);  // of the weight
      if constexpr (Config::weight::kRowScaled) {
        scale_[i] = arch::load_global(scales + row) * Config::weight::kFactor;
      }
      if (bias != nullptr) bias_[i] = arch::load_global(bias + row);
    }
  }
  // f(turn, i, the element of y), of those that there are.
  template <class F>
  KITTENS_DEVICE void for_each(const F& f) const {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        if (row_of(turn) >= p_.rows || !has(i)) continue;
        f(turn, i, int64_t{row_of(turn)} * p_.out_features + feature_of(i));
      }
    }
  }

  const linear_arguments& p_;
  int pass_, groups_, first_;
  int row_, side_, col_;
  T residual_[kTurns][kGroups], bias_[kGroups * kTiles] = {};
  float scale_[kGroups * kTiles] = {};
};

// What a block does. `feed` gives a warp its steps, one after the other:
//   feed.take(factors, tiles)   the next one, whose tiles are asked for
template <class Sums, class Config, class Feed>
KITTENS_DEVICE void multiply_groups(linear_sums_shared<Config>& shared, const linear_arguments& p,
                                    const block_groups<Config>& mine, Feed& feed) {
  const bool normalized = p.tensors.norm_weight != nullptr;
  Sums sums;
  linear_norm<Config, Config::row_halves> norm;
  for (int pass = 0; pass < mine.passes(); ++pass) {
    const int tiles = mine.count_of(pass) * Config::tiles_of_group;
    const linear_epilogue<Config> epilogue(p, mine, pass);
    sums.clear();
    for (int step = arch::warp_id(); step < p.steps; step += Config::warps) {
      linear_factors<Config> factors;
      if (normalized) norm.load_weight(p, step);  // it comes while the step does
      feed.take(factors, tiles);
      if (normalized) {
        if (pass == 0) norm.add_squares(factors.x);
        norm.multiply(factors.x);
      }
      sums.add(factors, tiles);
    }
    sums.share(shared.of_warp[pass % Config::sum_buffers][arch::warp_id()], tiles);
    if (normalized && pass == 0) norm.share(shared);
    group<Config::warps>::sync(1);
    epilogue.write(shared);
    // Before the next pass's sums; of two buffers, this one's next sums come behind the next
    // pass's.
    if constexpr (Config::sum_buffers == 1) group<Config::warps>::sync(1);
  }
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
