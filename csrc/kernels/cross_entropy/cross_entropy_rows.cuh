// cross_entropy of rows that fit in registers, of a block or of several: loss, and gradient.
//
//   logits [rows, width], targets [rows] → loss [rows], gradient [rows, width]
//
// Memory-bound: logits are read once and the gradient is written once. A block has one row, each
// lane up to eight 16-byte vectors of it as they are loaded, all on their way before the first is
// used. 32 warps are resident, up to 128 KB a multiprocessor, and rows do not wait for each other.
// (A block of several rows would need a barrier for each: a number that is not known to the
// compiler reserves all 16, and few blocks are resident then.)
//
//   4 vectors a lane    rows of one warp, no barrier: up to 1024 columns of 16 bits. Loaded with
//                       their targets, before it is known whether they are ignored
//   8 vectors           up to 16 warps, one barrier a row: up to 32768 columns of 16 bits. Ignored
//                       rows are not loaded
//   clusters            few rows, which would leave multiprocessors idle: up to 8 blocks a row, of
//                       16 warps with 4 vectors a lane, so up to 131072 columns of 16 bits. Each
//                       warp leaves its sums with all blocks of the row, and they meet once
#pragma once

#include <type_traits>

#include "kernels/cross_entropy/cross_entropy_far.cuh"
#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

// Vectors: of a lane. Warps: of a block, at most. Blocks: of a row, at most; they are a cluster.
template <class T, int Vectors, int Warps, int Blocks>
struct cross_entropy_rows_config {
  using type = T;
  using vector = vector16<T>;
  static constexpr int vectors = Vectors;
  static constexpr int warp_columns = Vectors * vector::kLength * kWarp;
  static constexpr bool loads_ignored = Vectors == 4;
  static constexpr int max_warps = Warps, max_blocks = Blocks;
  static constexpr bool in_cluster = Blocks > 1;
  // 64 registers a thread. (Of blocks of one warp, some architectures have no room for 32.)
  static constexpr int max_threads = (max_warps > 2 ? max_warps : 2) * kWarp;
  static constexpr int min_blocks = 1024 / max_threads;
  // Up to 14 columns may be outside of the vectors of the body.
  static constexpr int64_t block_columns = max_warps * warp_columns;
  // With eight vectors a lane, registers are too few for it: some would be spilled.
  static constexpr bool adds_up = Vectors == 4;
};

// One lane's part of a row.
template <class Config>
struct register_row {
  using T = typename Config::type;
  using vector = typename Config::vector;

  row_pieces<T> pieces;
  int first;  // vector of the body
  bool has_loose;
  typename vector::run body[Config::vectors];
  float loose = 0.0f;

  KITTENS_DEVICE register_row(const T* row, int64_t width, int warp)
      : pieces(row, width),
        first(warp * Config::vectors * kWarp + arch::lane_id()),
        has_loose(warp == 0 && pieces.has_loose(arch::lane_id())) {}

  KITTENS_DEVICE int vector_of(int i) const { return first + i * kWarp; }
  KITTENS_DEVICE bool exists(int i) const { return vector_of(i) < pieces.vectors; }

  KITTENS_DEVICE void load(const T* row) {
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      body[i] = vector::all(-kInfinity);
      if (exists(i)) body[i] = vector::from_global(row + pieces.column(vector_of(i)));
    }
    if (has_loose) loose = convert<float>(arch::load_global(row + loose_column()));
  }
  // 8 logits at a time, which leaves registers for the row.
  KITTENS_DEVICE void include_in(near_sums& sums, bool smoothing) const {
    constexpr int kVectors = 8 / vector::kLength;
#pragma unroll
    for (int i = 0; i < Config::vectors; i += kVectors) {
      float x[8];
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        float values[vector::kLength];
        body[i + k].get(values);
        if (smoothing && exists(i + k)) sums.include_plain(values);
#pragma unroll
        for (int j = 0; j < vector::kLength; ++j) x[k * vector::kLength + j] = values[j];
      }
      sums.include(x);
    }
    if (has_loose) sums.include_one(loose, smoothing);
  }
  KITTENS_DEVICE void store_gradient(T* row, const row_gradient<near_powers>& rule) const {
    const bool aligned = elements_past_16_bytes(row + pieces.head) == 0;
    // Of many vectors none waits for this branch.
    if (Config::vectors == 8 && aligned) {
      store_vectors(row, rule, std::true_type{});
    } else {
      store_vectors(row, rule, aligned);
    }
    if (!has_loose) return;
    float x[1] = {loose};
    rule.apply(x);
    rule.hit_target(x, loose_column());
    arch::store_global(row + loose_column(), convert<T>(x[0]));
  }
  template <class Bool>
  KITTENS_DEVICE void store_vectors(T* row, const row_gradient<near_powers>& rule,
                                    Bool aligned) const {
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (!exists(i)) break;
      const int column = pieces.column(vector_of(i));
      float x[vector::kLength];
      body[i].get(x);
      rule.apply(x);
      rule.hit_target(x, column);
      typename vector::run result;
      result.set(x);
      vector::to_global(row + column, result, aligned);
    }
  }
  KITTENS_DEVICE void store_zeros(T* row) const {
    const bool aligned = elements_past_16_bytes(row + pieces.head) == 0;
    for (int i = 0; i < Config::vectors && exists(i); ++i) {
      vector::to_global(row + pieces.column(vector_of(i)), vector::all(0.0f), aligned);
    }
    if (has_loose) arch::store_global(row + loose_column(), convert<T>(0.0f));
  }

  // Without an instruction, whatever the architecture: eight vectors' logits, as floats from the
  // first pass to the second, would be spilled, and so they are converted twice.
  KITTENS_DEVICE void forget_floats() {
    if constexpr (Config::vectors == 8) {
#pragma unroll
      for (auto& run : body) arch::wgmma_hold(run.words);
    }
  }
  // This part of the row, in memory.
  KITTENS_DEVICE far_row<T> far(const T* row) const {
    const int after = first + Config::vectors * kWarp;
    return {row,
            pieces,
            first,
            kWarp,
            after < pieces.vectors ? after : pieces.vectors,
            has_loose ? arch::lane_id() : -1};
  }

 private:
  KITTENS_DEVICE int loose_column() const { return pieces.loose_column(arch::lane_id()); }
};

// Where the warps of a row leave their sums, each in all blocks of the cluster.
template <class Config>
struct cluster_sums {
  static constexpr int max_warps = Config::max_warps * Config::max_blocks;
  float4 of_warp[max_warps];  // top, total, plain
};

// The sums of a row over its `warps` warps, of which this is number `warp`, in a cluster at whose
// barrier all threads have arrived: before the first sums, so that all blocks run when they are
// written to, and before others, so that nobody reads those before. What a thread read of global
// memory before, others may write afterwards.
template <class Config, class Sums>
KITTENS_DEVICE void combine(Sums& sums, cluster_sums<Config>& shared, int warp, int warps,
                            bool smoothing) {
  const int lane = arch::lane_id();
  sums.combine_lanes(smoothing);
  cluster::wait();
  if (lane < cluster::blocks()) {
    arch::store_cluster(&shared.of_warp[warp], lane, {sums.top, sums.total, sums.plain, 0.0f});
  }
  cluster::sync();
  sums = {};
#pragma unroll
  for (int first = 0; first < shared.max_warps; first += kWarp) {
    if (first + lane >= warps) break;
    const float4 other = arch::load_shared(&shared.of_warp[first + lane]);
    sums.include(Sums{other.x, other.y, other.z});
  }
  sums.combine_lanes(smoothing);
}

// Which row a block has, and which of the row's warps this is.
template <class Config>
struct place_in_rows {
  int64_t row = arch::block_x();
  int warp = arch::warp_id(), warps = arch::block_threads() / kWarp;

  KITTENS_DEVICE place_in_rows() {
    if constexpr (!Config::in_cluster) return;
    row = arch::block_y();
    warp += arch::block_x() * warps;
    warps *= arch::grid_x();
  }
};

// What a block does with its row, or with its slice of it. Returns the lane's part of how many
// targets count.
template <class Config>
KITTENS_DEVICE int64_t work_on_row(const cross_entropy_forward_params& p,
                                   const place_in_rows<Config>& place) {
  using T = typename Config::type;
  if constexpr (Config::in_cluster) cluster::arrive();
  const int64_t r = place.row;
  const auto* x = static_cast<const T*>(p.logits) + r * p.stride;
  auto* gradient = static_cast<T*>(p.gradient) + r * p.gradient_stride;
  const bool first = place.warp == 0 && arch::lane_id() == 0, smoothing = p.label_smoothing > 0.0f;
  const int64_t target = load_target(p, r);
  register_row<Config> row(x, p.width, place.warp);
  if constexpr (Config::loads_ignored) row.load(x);
  // Beside eight vectors there are no registers for what is needed behind the sums alone: on some
  // architectures they would be spilled.
  constexpr bool kEarly = Config::vectors == 4;
  const int64_t count = kEarly ? count_of_lane(p) : 0;
  if (target == p.ignore_index) {
    if (first) hand_in_loss(p, r, 0.0f);
    if (p.gradient != nullptr) row.store_zeros(gradient);
    if constexpr (Config::in_cluster) cluster::wait();  // as whoever arrives must
    return count;
  }

  if constexpr (!Config::loads_ignored) row.load(x);
  const int column = column_of(target, p.width);
  const float x_target =
      first && column >= 0 ? convert<float>(arch::load_global(x + column)) : 0.0f;
  const auto factor_of_row = [&] {
    const float dloss = p.dloss == nullptr ? 1.0f : arch::load_global(p.dloss + r * p.dloss_stride);
    return dloss * (1.0f / divisor(p, kEarly ? count : count_of_lane(p)));
  };
  const float early = kEarly && p.gradient != nullptr ? factor_of_row() : 0.0f;
  const auto meet = [&](auto& sums, int half) {
    if constexpr (Config::in_cluster) {
      auto& shared = *reinterpret_cast<cluster_sums<Config>*>(arch::dynamic_shared());
      combine(sums, shared, place.warp, place.warps, smoothing);
    } else {
      auto& shared = *reinterpret_cast<group_sums*>(arch::dynamic_shared());
      combine(sums, shared, half, place.warp, place.warps, smoothing);
    }
  };
  const auto finish = [&](const auto& sums, const auto& part) {
    const float lse = log_sum_exp(sums, column);
    // On its way while the gradient is written.
    if (first) {
      tell_if_outside(p, r, column);
      hand_in_loss(p, r, loss_of(p, sums.plain, lse, x_target));
    }
    if (p.gradient == nullptr) return;
    const float factor = kEarly ? early : factor_of_row();
    part.store_gradient(gradient, gradient_of(p, sums, lse, column, factor));
  };
  near_sums sums;
  row.include_in(sums, smoothing);
  meet(sums, 0);
  if (is_far<T>(sums)) [[unlikely]] {
    if constexpr (Config::in_cluster) cluster::arrive();
    const far_row<T> part = row.far(x);
    far_sums again = part.sums(smoothing);
    meet(again, 1);
    finish(again, part);
    return count;
  }
  row.forget_floats();
  finish(sums, row);
  return count;
}

// Grid: a block a row, of as many warps as the row needs; or (a cluster's blocks, rows).
template <class Config>
__global__ void __launch_bounds__(Config::max_threads,
                                  arch::min_blocks<Config::max_threads, Config::min_blocks>)
    cross_entropy_rows(const __grid_constant__ cross_entropy_forward_params p) {
  begin_dependent_grid();
  const place_in_rows<Config> place;
  const int64_t count = work_on_row(p, place);
  if constexpr (Config::adds_up) {
    if (p.total == nullptr || place.warp != 0 || place.row != p.rows - 1) return;
    add_up_losses(p, divisor(p, count));
  }
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
