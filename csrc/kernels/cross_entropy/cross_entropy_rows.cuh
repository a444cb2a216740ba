// cross_entropy of rows that fit in registers, up to kRegisterWidth columns: loss, and gradient.
//
//   logits [rows, width], targets [rows] → loss [rows], gradient [rows, width]
//
// Memory-bound: logits are read once and the gradient is written once. A group of warps has one row,
// each lane 32 of its elements as they are loaded; several groups share a block, so that narrow rows
// fill it. Many blocks are resident, which keeps enough loads on their way.
//
//   width ≤ 1024    a warp a row, no barrier
//   above           a warp per 1024 columns; one barrier a row
#pragma once

#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

template <class T>
struct cross_entropy_rows_config {
  using type = T;
  using vector = vector16<T>;
  static constexpr int vectors = 32 / vector::kLength;  // of a lane
  static constexpr int warp_columns = 32 * kWarp;
  static constexpr int max_warps = 16;  // of a row
  static constexpr int max_threads = max_warps * kWarp;
  // Up to 14 columns may be outside of the vectors of the body.
  static constexpr int64_t max_width = max_warps * warp_columns;
};

// One lane's part of a row.
template <class Config>
struct register_row {
  using T = typename Config::type;
  using vector = typename Config::vector;

  row_pieces<T> pieces;
  int first;  // vector of the body
  bool has_loose;
  typename vector::run body[Config::vectors] = {};
  float loose = 0.0f;

  KITTENS_DEVICE register_row(const T* row, int64_t width, int warp)
      : pieces(row, width),
        first(warp * Config::vectors * kWarp + arch::lane_id()),
        has_loose(warp == 0 && pieces.has_loose(arch::lane_id())) {}

  KITTENS_DEVICE int vector_of(int i) const { return first + i * kWarp; }

  KITTENS_DEVICE void load(const T* row) {
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (vector_of(i) < pieces.vectors) {
        body[i] = vector::from_global(row + pieces.column(vector_of(i)));
      }
    }
    if (has_loose) loose = convert<float>(arch::load_global(row + loose_column()));
  }
  KITTENS_DEVICE void include_in(softmax_sums& sums, bool smoothing) const {
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (vector_of(i) >= pieces.vectors) break;
      float x[vector::kLength];
      body[i].get(x);
      sums.include(x);
      if (smoothing) sums.include_plain(x);
    }
    if (has_loose) sums.include_one(loose, smoothing);
  }
  // Calls change(values, first column) for each run, and stores what becomes of it.
  template <class F>
  KITTENS_DEVICE void store(T* row, F change) const {
    const bool aligned = elements_past_16_bytes(row + pieces.head) == 0;
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (vector_of(i) >= pieces.vectors) break;
      const int column = pieces.column(vector_of(i));
      float x[vector::kLength];
      body[i].get(x);
      change(x, column);
      typename vector::run result;
      result.set(x);
      vector::to_global(row + column, result, aligned);
    }
    if (!has_loose) return;
    float x[1] = {loose};
    change(x, loose_column());
    arch::store_global(row + loose_column(), convert<T>(x[0]));
  }

 private:
  KITTENS_DEVICE int loose_column() const { return pieces.loose_column(arch::lane_id()); }
};

// Grid: a block for each `groups` rows, groups · warps warps a block.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 2)
    cross_entropy_rows(const __grid_constant__ cross_entropy_forward_params p, int warps) {
  using T = typename Config::type;
  const int groups = arch::block_threads() / (warps * kWarp);
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  const int64_t r = int64_t(arch::block_x()) * groups + group;
  if (r >= p.rows) return;  // the whole group

  const auto* x = static_cast<const T*>(p.logits) + r * p.stride;
  auto* gradient = static_cast<T*>(p.gradient) + r * p.gradient_stride;
  const bool first = warp == 0 && arch::lane_id() == 0, smoothing = p.label_smoothing > 0.0f;
  const int64_t target = load_target(p, r);
  register_row<Config> row(x, p.width, warp);
  if (target == p.ignore_index) {
    if (first && p.loss != nullptr) arch::store_global(p.loss + r, 0.0f);
    if (p.gradient == nullptr) return;
    row.store(gradient, []<int N>(float(&values)[N], int) {
      for (int i = 0; i < N; ++i) values[i] = 0.0f;
    });
    return;
  }

  row.load(x);
  const bool read_target = first && target >= 0 && target < p.width;
  const float x_target = read_target ? convert<float>(arch::load_global(x + target)) : 0.0f;
  const float dloss = p.dloss == nullptr ? 1.0f : arch::load_global(p.dloss + r * p.dloss_stride);
  const float factor = dloss * inverse_count(p.counts);
  softmax_sums sums;
  row.include_in(sums, smoothing);
  combine(sums, reinterpret_cast<group_sums*>(arch::dynamic_shared())[group], 0, warp, warps,
          1 + group, smoothing);
  const row_result result = finish_row(p, sums, target, x_target, factor);
  if (first && p.loss != nullptr) arch::store_global(p.loss + r, result.loss);
  if (p.gradient == nullptr) return;
  row.store(gradient, [&](auto& values, int column) { result.gradient.apply(values, column); });
}

}  // namespace thunderkittens::inline KITTENS_TARGET
