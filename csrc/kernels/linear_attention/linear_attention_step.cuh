// One token of linear attention: updates the state of each head of a batch, and reads it out.
//
//   S ← e^g S + k vᵀ,   o = scale · Sᵀ q
//
// Memory-bound: the state, [K, V] floats, is read once and written once, and beside it the rest is
// nothing. A block has 32 columns of a head's state (V is cut for a batch of 1, whose heads are too
// few), all of its rows: each thread loads its runs of up to `rows` rows before it waits for q, k
// and v, which the block shares, and keeps the sums of its columns' o in registers.
//
//   lanes     threads that have a row's 32 columns, a run each
//   groups    rows that the block loads side by side; a thread has rows group, group + groups, …
//
// The sums of a column over the rows have a fixed order: of a thread, of a warp, of the block.
#pragma once

#include <kittens.cuh>

#include "kernels/linear_attention/linear_attention_step.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

// T: element type of q, k, v and o. Run: floats of the state that a thread moves at once. Rows: how
// many runs a thread has on their way.
template <class T, int Run, int Rows>
struct linear_attention_step_config {
  using type = T;
  static constexpr int run = Run, rows = Rows;
  static constexpr int threads = 128, warps = threads / kWarp;
  static constexpr int columns = kLinearAttentionStepValues;
  static constexpr int lanes = columns / Run, groups = threads / lanes;
  // What a multiprocessor has on its way of the states: 64 KiB with 4 rows, at 64 registers a
  // thread, and 96 KiB with 8, at 80.
  static constexpr int min_blocks = Rows == 4 ? 8 : 6;
};

template <class Config>
struct linear_attention_step_shared {
  float q[kLinearAttentionStepKeys], k[kLinearAttentionStepKeys];
  float v[Config::columns];
  float sums[Config::warps][Config::columns];
};

// What a block works on: 32 columns of a head's state, of which `count` are there.
struct step_part {
  int batch, head;
  int column, count;
  int64_t state;  // which of the states; −1: none, the token is padding

  template <class Config>
  KITTENS_DEVICE static step_part of(const linear_attention_step_params& params) {
    const auto& p = params.problem;
    const int heads = int(p.heads), values = int(p.value_width);
    const int parts = (values + Config::columns - 1) / Config::columns;
    const int of_head = arch::block_x() / parts;
    step_part part;
    part.column = (arch::block_x() - of_head * parts) * Config::columns;
    part.count = values - part.column < Config::columns ? values - part.column : Config::columns;
    part.batch = of_head / heads;
    part.head = of_head - part.batch * heads;
    part.state = part.batch;
    if (const void* const indices = params.tensors.state_indices; indices != nullptr) {
      part.state = p.int64_indices
                       ? arch::load_global(static_cast<const int64_t*>(indices) + part.batch)
                       : arch::load_global(static_cast<const int32_t*>(indices) + part.batch);
      if (part.state < 0 || part.state >= p.states) part.state = -1;
    }
    return part;
  }
};

// A thread's runs in the rows first, first + groups, … of the state.
template <class Config>
struct step_runs {
  using access = detail::run_access<float, Config::run>;
  lane_run<float, Config::run> run[Config::rows];

  KITTENS_DEVICE void load(const float* state, int64_t stride, int first, int keys, bool inside) {
#pragma unroll
    for (int i = 0; i < Config::rows; ++i) {
      const int row = first + i * Config::groups;
      access::load(run[i], state + row * stride, inside && row < keys);
    }
  }

  // Of the token's q and k, all of its keys, and the thread's columns of v; adds to those of o.
  KITTENS_DEVICE void update(const linear_attention_step_shared<Config>& shared, float decay,
                             const float (&v)[Config::run], float (&o)[Config::run], int first,
                             int keys) {
#pragma unroll
    for (int i = 0; i < Config::rows; ++i) {
      // No branch, behind which the next row's loads would wait.
      const bool there = first + i * Config::groups < keys;
      const int row = there ? first + i * Config::groups : 0;
      const float q = arch::load_shared(&shared.q[row]), k = arch::load_shared(&shared.k[row]);
      float s[Config::run];
      run[i].get(s);
#pragma unroll
      for (int c = 0; c < Config::run; ++c) {
        s[c] = fmaf(k, v[c], decay * s[c]);
        o[c] = there ? fmaf(q, s[c], o[c]) : o[c];
      }
      run[i].set(s);
    }
  }

  KITTENS_DEVICE void store(float* state, int64_t stride, int first, int keys, bool inside) const {
#pragma unroll
    for (int i = 0; i < Config::rows; ++i) {
      const int row = first + i * Config::groups;
      access::store(state + row * stride, run[i], inside && row < keys);
    }
  }
};

// A thread's elements of the token's q and k, and of the block's columns of v: on their way
// together with the state's, until the block shares them.
template <class Config>
struct step_token {
  using T = typename Config::type;
  static constexpr int elements = kLinearAttentionStepKeys / Config::threads;
  T q[elements], k[elements], v{};

  KITTENS_DEVICE void load(const linear_attention_step_params& params, const step_part& part,
                           int share) {
    const auto& [p, t] = params;
    const int key_head = part.head / share, keys = int(p.key_width);
    const T* const q_row = row(t.q, p.q_strides, part.batch, key_head);
    const T* const k_row = row(t.k, p.k_strides, part.batch, key_head);
#pragma unroll
    for (int e = 0; e < elements; ++e) {
      const int i = arch::thread_id() + e * Config::threads;
      if (i >= keys) continue;
      q[e] = arch::load_global(q_row + i * p.q_strides.element);
      k[e] = arch::load_global(k_row + i * p.k_strides.element);
    }
    if (arch::thread_id() >= part.count) return;
    v = arch::load_global(row(t.v, p.v_strides, part.batch, part.head) +
                          (part.column + arch::thread_id()) * p.v_strides.element);
  }

  KITTENS_DEVICE void store(linear_attention_step_shared<Config>& shared, int keys,
                            int values) const {
    const int thread = arch::thread_id();
#pragma unroll
    for (int e = 0; e < elements; ++e) {
      const int i = thread + e * Config::threads;
      if (i >= keys) continue;
      arch::store_shared(&shared.q[i], convert<float>(q[e]));
      arch::store_shared(&shared.k[i], convert<float>(k[e]));
    }
    if (thread < values) arch::store_shared(&shared.v[thread], convert<float>(v));
  }

 private:
  KITTENS_DEVICE static const T* row(const void* data, const linear_attention_step_strides& strides,
                                     int batch, int head) {
    return static_cast<const T*>(data) + batch * strides.batch + head * strides.head;
  }
};

// The block's columns of o from the threads' sums.
template <class Config>
KITTENS_DEVICE void store_output(linear_attention_step_shared<Config>& shared,
                                 float (&sums)[Config::run], typename Config::type* o, float scale,
                                 int count) {
#pragma unroll
  for (int step = Config::lanes; step < kWarp; step *= 2) {
#pragma unroll
    for (float& sum : sums) sum += arch::shuffle_xor(sum, step);
  }
  if (arch::lane_id() < Config::lanes) {
#pragma unroll
    for (int c = 0; c < Config::run; ++c) {
      arch::store_shared(&shared.sums[arch::warp_id()][arch::lane_id() * Config::run + c], sums[c]);
    }
  }
  arch::sync_block();
  const int column = arch::thread_id();
  if (column >= count) return;
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < Config::warps; ++warp) {
    total += arch::load_shared(&shared.sums[warp][column]);
  }
  arch::store_global(o + column, convert<typename Config::type>(scale * total));
}

// Grid: batch · heads · (V / 32, rounded up) blocks. share: heads that read one of q and k.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    linear_attention_step(const __grid_constant__ linear_attention_step_params params, int share,
                          float scale) {
  begin_dependent_grid();
  using T = typename Config::type;
  const auto& [p, t] = params;
  const step_part part = step_part::of<Config>(params);
  const int64_t head = int64_t(part.batch) * p.heads + part.head;
  T* const o = static_cast<T*>(t.o) + head * p.value_width + part.column;
  if (part.state < 0) {
    if (arch::thread_id() < part.count) {
      arch::store_global(o + arch::thread_id(), convert<T>(0.0f));
    }
    return;
  }

  auto& shared = *reinterpret_cast<linear_attention_step_shared<Config>*>(arch::dynamic_shared());
  const int keys = int(p.key_width), group = arch::thread_id() / Config::lanes;
  const int column = (arch::thread_id() - group * Config::lanes) * Config::run;
  const bool inside = column < part.count;
  float* const state = t.state + part.state * p.state_stride + part.head * p.state_head_stride +
                       part.column + column;
  step_runs<Config> runs;
  runs.load(state, p.state_key_stride, group, keys, inside);
  step_token<Config> token;
  token.load(params, part, share);
  float decay = 1.0f;
  if (t.log_decay != nullptr) {
    const float g = arch::load_global(t.log_decay + part.batch * p.decay_batch_stride +
                                      part.head * p.decay_head_stride);
    decay = arch::exp2_approx(g * kLog2e);
  }
  token.store(shared, keys, part.count);
  arch::sync_block();

  float v[Config::run], sums[Config::run] = {};
#pragma unroll
  for (int c = 0; c < Config::run; ++c) {
    v[c] = inside ? arch::load_shared(&shared.v[column + c]) : 0.0f;
  }
  for (int first = group;;) {
    runs.update(shared, decay, v, sums, first, keys);
    runs.store(state, p.state_key_stride, first, keys, inside);
    first += Config::rows * Config::groups;
    if (first - group >= keys) break;
    runs.load(state, p.state_key_stride, first, keys, inside);
  }
  store_output(shared, sums, o, scale, part.count);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
