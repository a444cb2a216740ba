// mamba2, one token: updates the state of each head of a batch, and reads it out.
//
//   S ← e^(dt' A) S + dt' x Bᵀ,   y = (S C + D x) · silu(z)
//
// Memory-bound: the state, [P, N] floats, is read once and written once, and beside it the rest is
// nothing. `lanes` threads have a row of the state, and some rows each: all are on their way before
// the first is waited for. The lanes of a row add up its part of y, in a fixed order.
#pragma once

#include <kittens.cuh>

#include "kernels/mamba2/mamba2_gates.cuh"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

// T: element type of x, B, C, z and y. Run: floats of the state that a thread moves at once. Lanes
// · Runs · Run are at least N. Rows: that a thread has parts of.
template <class T, int Run, int Lanes, int Runs, int Rows>
struct mamba2_step_config {
  using type = T;
  static constexpr int run = Run, lanes = Lanes, runs = Runs, rows = Rows;
  static constexpr int threads = 128;
  static constexpr int groups = threads / Lanes;  // rows that a block has side by side
  static constexpr int rows_of_block = groups * Rows;
};

// A thread's part of B or C.
template <class Config>
struct step_columns {
  float values[Config::runs][Config::run];

  KITTENS_DEVICE step_columns(const void* data, int64_t first, int lane, int width) {
    const auto* const row = static_cast<const typename Config::type*>(data) + first;
#pragma unroll
    for (int i = 0; i < Config::runs; ++i) {
#pragma unroll
      for (int e = 0; e < Config::run; ++e) {
        const int column = (i * Config::lanes + lane) * Config::run + e;
        values[i][e] = column < width ? convert<float>(arch::load_global(row + column)) : 0.0f;
      }
    }
  }
};

// Which of the states a batch's is; −1: none.
KITTENS_DEVICE int64_t state_of(const mamba2_step_params& params, int batch) {
  const void* const indices = params.tensors.state_indices;
  if (indices == nullptr) return batch;
  const int64_t state = params.problem.int64_indices
                            ? arch::load_global(static_cast<const int64_t*>(indices) + batch)
                            : arch::load_global(static_cast<const int32_t*>(indices) + batch);
  return state < 0 || state >= params.problem.states ? -1 : state;
}

template <class T>
KITTENS_DEVICE float step_of_token(const mamba2_step_params& params, int batch, int head) {
  const auto& [p, t] = params;
  const int64_t place = batch * p.dt_strides.batch + head * p.dt_strides.head;
  float dt = p.dt_type == dtype::float32
                 ? arch::load_global(static_cast<const float*>(t.dt) + place)
                 : convert<float>(arch::load_global(static_cast<const T*>(t.dt) + place));
  if (t.dt_bias != nullptr) dt += arch::load_global(t.dt_bias + head);
  return p.softplus ? softplus(dt) : dt;
}

// Grid: batch · heads · (P / rows_of_block, rounded up) blocks.
template <class Config>
__global__ void __launch_bounds__(Config::threads)
    mamba2_step(const __grid_constant__ mamba2_step_params params) {
  begin_dependent_grid();
  using T = typename Config::type;
  using access = detail::run_access<float, Config::run>;
  const auto& [p, t] = params;
  const int parts = int((p.head_width + Config::rows_of_block - 1) / Config::rows_of_block);
  const int of_head = arch::block_x() / parts, batch = int(of_head / p.heads);
  const int head = int(of_head - batch * p.heads), group = int(head / (p.heads / p.groups));
  const int lane = arch::thread_id() % Config::lanes;
  const int first = (arch::block_x() - of_head * parts) * Config::rows_of_block +
                    arch::thread_id() / Config::lanes;
  const int height = int(p.head_width), width = int(p.state_width);
  const int64_t slot = state_of(params, batch);
  float* const state =
      t.state + (slot < 0 ? 0 : slot) * p.state_stride + head * p.state_head_stride;

  lane_run<float, Config::run> runs[Config::rows][Config::runs];
  const auto place_of = [&](int r, int i, bool& there) {
    const int row = first + r * Config::groups;
    const int column = (i * Config::lanes + lane) * Config::run;
    there = slot >= 0 && row < height && column < width;
    return there ? state + row * p.state_row_stride + column : state;
  };
#pragma unroll
  for (int r = 0; r < Config::rows; ++r) {
#pragma unroll
    for (int i = 0; i < Config::runs; ++i) {
      bool there;
      const float* const from = place_of(r, i, there);
      access::load(runs[r][i], from, there);
    }
  }
  const step_columns<Config> b(t.b, batch * p.b_strides.batch + group * p.b_strides.head, lane,
                               width);
  const step_columns<Config> c(t.c, batch * p.c_strides.batch + group * p.c_strides.head, lane,
                               width);
  const float step = step_of_token<T>(params, batch, head);
  const float decay = arch::exp2_approx(step * arch::load_global(t.a + head) * kLog2e);
  const float d = t.d == nullptr ? 0.0f : arch::load_global(t.d + head);
  const auto number_of = [&](const void* data, const mamba2_step_strides& strides, int row) {
    const int64_t place = batch * strides.batch + head * strides.head + row;
    return convert<float>(arch::load_global(static_cast<const T*>(data) + place));
  };
#pragma unroll
  for (int r = 0; r < Config::rows; ++r) {
    const int row = first + r * Config::groups;
    const float x = row < height ? number_of(t.x, p.x_strides, row) : 0.0f;
    const float added = step * x;
    float y = 0.0f;
#pragma unroll
    for (int i = 0; i < Config::runs; ++i) {
      float s[Config::run];
      runs[r][i].get(s);
      bool there;
      float* const to = place_of(r, i, there);
#pragma unroll
      for (int e = 0; e < Config::run; ++e) {
        s[e] = fmaf(added, b.values[i][e], decay * s[e]);
        y = there ? fmaf(s[e], c.values[i][e], y) : y;
      }
      runs[r][i].set(s);
      access::store(to, runs[r][i], there);
    }
#pragma unroll
    for (int delta = 1; delta < Config::lanes; delta *= 2) y += arch::shuffle_xor(y, delta);
    if (lane != 0 || row >= height) continue;
    y = fmaf(d, x, y);
    if (t.z != nullptr) {
      const float z = number_of(t.z, p.z_strides, row);
      y *= z * arch::reciprocal_approx(1 + arch::exp2_approx(-z * kLog2e));
    }
    arch::store_global(static_cast<T*>(t.y) + (int64_t{batch} * p.heads + head) * height + row,
                       convert<T>(slot < 0 ? 0.0f : y));
  }
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
