// cross_entropy of rows of any width on any architecture: loss, and gradient.
//
//   logits [rows, width], targets [rows] → loss [rows], gradient [rows, width]
//
// Memory-bound: logits are read once from memory, and a second time from the caches, and the
// gradient is written once. A block has one row. Its threads walk over the row twice, each over the
// same vectors, four at a time: for its sums from the first to the last, then for its gradient back
// from the last to the first. What was read last is the nearest: in the first-level cache, then in
// the L2; and of rows that do not fit there, at least a part comes from there.
//
//   no gradient     one pass
//   ignored rows    are not read
//   far rows        are read a third time
#pragma once

#include "kernels/cross_entropy/cross_entropy_far.cuh"
#include "kernels/cross_entropy/cross_entropy_loss.cuh"
#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

template <class T>
struct cross_entropy_two_pass_config {
  using type = T;
  using vector = vector16<T>;
  static constexpr int vectors = 4;         // of a thread, on their way at a time
  static constexpr int max_threads = 1024;  // 64 registers a thread
  // Of a warp, where a row takes fewer warps than it may. So one of 8192 takes eight, a quarter of
  // a multiprocessor's registers (others_find_room).
  static constexpr int64_t warp_columns = 1024;
};

// One thread's view of a row in memory.
template <class Config>
struct walked_row {
  using T = typename Config::type;
  using vector = typename Config::vector;

  row_pieces<T> pieces;
  const T* x;
  T* gradient;  // perhaps x
  int thread;

  KITTENS_DEVICE bool has_loose() const { return pieces.has_loose(thread); }
  KITTENS_DEVICE int loose_column() const { return pieces.loose_column(thread); }

  // In place, too: a thread writes what it alone reads.
  KITTENS_DEVICE void store_gradient(const row_gradient<near_powers>& rule) const {
    const int threads = arch::block_threads(), step = Config::vectors * threads;
    const int steps = (pieces.vectors + step - 1) / step;
    const bool aligned = elements_past_16_bytes(gradient + pieces.head) == 0;
    for (int first = (steps - 1) * step + thread; first >= 0; first -= step) {
      typename vector::run runs[Config::vectors];
#pragma unroll
      for (int i = 0; i < Config::vectors; ++i) {
        const int v = first + i * threads;
        if (v < pieces.vectors) runs[i] = vector::from_global(x + pieces.column(v));
      }
#pragma unroll
      for (int i = 0; i < Config::vectors; ++i) {
        const int v = first + i * threads;
        if (v >= pieces.vectors) break;
        const int column = pieces.column(v);
        float values[vector::kLength];
        runs[i].get(values);
        rule.apply(values);
        rule.hit_target(values, column);
        runs[i].set(values);
        store(gradient + column, runs[i], aligned);
      }
    }
  }
  // Nobody reads it soon: it leaves the L2 to logits. (4096 × 128256 bf16 take 884 µs, and 931 by
  // ordinary stores, 8192 × 50304 625 and 617: H100.)
  KITTENS_DEVICE static void store(T* p, const typename vector::run& v, bool aligned) {
    if (!aligned) return vector::to_global(p, v, /*aligned=*/false);
    uint4 word;
    std::memcpy(&word, &v, sizeof(word));
    arch::store_global_streaming(reinterpret_cast<uint4*>(p), word);
  }
  KITTENS_DEVICE void store_loose(const row_gradient<near_powers>& rule, float logit) const {
    float values[1] = {logit};
    rule.apply(values);
    rule.hit_target(values, loose_column());
    arch::store_global(gradient + loose_column(), convert<T>(values[0]));
  }
  KITTENS_DEVICE void store_zeros() const {
    const bool aligned = elements_past_16_bytes(gradient + pieces.head) == 0;
    for (int v = thread; v < pieces.vectors; v += arch::block_threads()) {
      vector::to_global(gradient + pieces.column(v), vector::all(0.0f), aligned);
    }
    if (has_loose()) arch::store_global(gradient + loose_column(), convert<T>(0.0f));
  }
  KITTENS_DEVICE far_row<T> far() const {
    return {x, pieces, thread, arch::block_threads(), pieces.vectors, has_loose() ? thread : -1};
  }
};

// What a block does with its row.
template <class Config>
KITTENS_DEVICE void walk_over_row(const cross_entropy_forward_params& p) {
  using T = typename Config::type;
  const int thread = arch::thread_id(), warps = arch::block_threads() / kWarp;
  const int64_t r = arch::block_x();
  const bool smoothing = p.label_smoothing > 0.0f;
  const auto* x = static_cast<const T*>(p.logits) + r * p.stride;
  auto* gradient = static_cast<T*>(p.gradient) + r * p.gradient_stride;
  const walked_row<Config> row{{x, p.width}, x, gradient, thread};
  const int64_t target = load_target(p, r);
  if (target == p.ignore_index) {
    if (thread == 0) hand_in_loss(p, r, 0.0f);
    if (p.gradient != nullptr) row.store_zeros();
    return;
  }

  near_sums sums;
  include_vectors<Config>(sums, x, row.pieces, smoothing);
  // On their way together; before the row, they would take registers from it.
  const int column = column_of(target, p.width);
  const float x_target =
      thread == 0 && column >= 0 ? convert<float>(arch::load_global(x + column)) : 0.0f;
  const float dloss = p.dloss == nullptr ? 1.0f : arch::load_global(p.dloss + r * p.dloss_stride);
  float loose = 0.0f;
  if (row.has_loose()) loose = convert<float>(arch::load_global(x + row.loose_column()));
  const float factor = p.gradient == nullptr ? 0.0f : dloss * (1.0f / divisor(p, count_of_lane(p)));
  if (row.has_loose()) sums.include_one(loose, smoothing);

  auto& shared = *reinterpret_cast<group_sums*>(arch::dynamic_shared());
  const auto hand_in = [&](const auto& sums) {
    const float lse = log_sum_exp(sums, column);
    if (thread == 0) {
      tell_if_outside(p, r, column);
      hand_in_loss(p, r, loss_of(p, sums.plain, lse, x_target));
    }
    return gradient_of(p, sums, lse, column, factor);
  };
  combine(sums, shared, 0, arch::warp_id(), warps, smoothing);
  if (is_far<T>(sums)) [[unlikely]] {
    const far_row<T> part = row.far();
    far_sums again = part.sums(smoothing);
    combine(again, shared, 1, arch::warp_id(), warps, smoothing);
    const auto rule = hand_in(again);
    if (p.gradient != nullptr) part.store_gradient(gradient, rule);
    return;
  }
  const auto rule = hand_in(sums);
  if (p.gradient == nullptr) return;
  row.store_gradient(rule);
  if (row.has_loose()) row.store_loose(rule, loose);
}

// Grid: a block a row.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    cross_entropy_two_pass(const __grid_constant__ cross_entropy_forward_params p) {
  begin_dependent_grid();
  walk_over_row<Config>(p);
  if (p.total == nullptr || arch::warp_id() != 0 || arch::block_x() != p.rows - 1) return;
  add_up_losses(p, divisor(p, count_of_lane(p)));
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
