// Sums of a matrix' columns: those of parts of its rows, and the sums of these. No sum meets
// another in an atomic, so all have the same bits on every run, whatever the GPU.
#pragma once

#include <kittens.cuh>

#include "kernels/mlp/mlp.h"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {

using namespace kittens;

template <class T>
struct column_sums_config {
  using type = T;
  static constexpr int threads = 256, warps = threads / 32;
  static constexpr int run = 16 / int(sizeof(T));  // elements of a lane
  static constexpr int slice = 32 * run;           // of a row, of a warp
  static constexpr int ahead = 8;                  // rows that a warp has in flight
  static constexpr int part_threads = 1024, part_warps = part_threads / 32;  // of add_parts
};

// The sum of each warp's values over the block, in warp 0, in the order of the warps.
template <int Warps, int N>
KITTENS_DEVICE void add_warps(float (&values)[N]) {
  auto* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int warp = arch::warp_id(), lane = arch::lane_id();
#pragma unroll
  for (int e = 0; e < N; ++e) arch::store_shared(shared + (warp * N + e) * 32 + lane, values[e]);
  arch::sync_block();
  if (warp != 0) return;
  for (int w = 1; w < Warps; ++w) {
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] += arch::load_shared(shared + (w * N + e) * 32 + lane);
  }
}

template <class T, int N>
KITTENS_DEVICE void add_run(float (&values)[N], const lane_run<T, N>& run) {
  float more[N];
  run.get(more);
#pragma unroll
  for (int e = 0; e < N; ++e) values[e] += more[e];
}

// Grid: (slices of a row, parts of the rows). Warp w of a part adds its rows w, w + 8, …
template <class Config>
__global__ void __launch_bounds__(Config::threads, 3)
    column_sums(const typename Config::type* x, int64_t rows, int64_t width, int64_t stride,
                int64_t rows_of_part, float* partial) {
  using T = typename Config::type;
  constexpr int kRun = Config::run, kWarps = Config::warps, kAhead = Config::ahead;
  using access = detail::run_access<T, kRun>;
  const int64_t column = int64_t{arch::block_x()} * Config::slice + arch::lane_id() * kRun;
  const bool inside = column < width;
  // The last rows first: what has written x has left them in the L2.
  const int64_t part = arch::grid_y() - 1 - arch::block_y();
  const int64_t first = part * rows_of_part, more = rows - first;
  const int64_t end = first + (more < rows_of_part ? more : rows_of_part);
  int64_t row = first + arch::warp_id();
  int64_t at = row * stride + column;
  const int64_t step = kWarps * stride;
  float sum[kRun] = {};
  for (; inside && row + (kAhead - 1) * kWarps < end; row += kAhead * kWarps) {
    lane_run<T, kRun> runs[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) access::load(runs[a], x + at + a * step, true);
#pragma unroll
    for (const auto& run : runs) add_run(sum, run);
    at += kAhead * step;
  }
  for (; inside && row < end; row += kWarps, at += step) {
    lane_run<T, kRun> run;
    access::load(run, x + at, true);
    add_run(sum, run);
  }
  add_warps<kWarps>(sum);
  if (arch::warp_id() != 0 || !inside) return;
#pragma unroll
  for (int e = 0; e < kRun; ++e) arch::store_global(partial + part * width + column + e, sum[e]);
}

// Grid: groups of 32 columns. Warp w adds parts w, w + 32, …
template <class Config>
__global__ void __launch_bounds__(Config::part_threads)
    add_parts(int64_t parts, int64_t width, const float* partial, typename Config::type* sums,
              bool accumulate) {
  using T = typename Config::type;
  begin_dependent_grid();
  const int64_t column = int64_t{arch::block_x()} * 32 + arch::lane_id();
  const bool inside = column < width;
  const float* from = partial + arch::warp_id() * width + column;
  float sum[1] = {};
#pragma unroll 8
  for (int64_t part = arch::warp_id(); part < parts; part += Config::part_warps) {
    if (inside) sum[0] += arch::load_global(from);
    from += Config::part_warps * width;
  }
  add_warps<Config::part_warps>(sum);
  if (arch::warp_id() != 0 || !inside) return;
  T* const to = sums + column;
  if (accumulate) sum[0] += convert<float>(arch::load_global(to));
  arch::store_global(to, convert<T>(sum[0]));
}

}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
