// One token of Based's linear attention: updates the state of each head, and reads it out.
//
//   S ← S + φ(k) vᵀ,   z ← z + φ(k),   o = φ(q)ᵀ S / (φ(q) · z + eps)
//
// (thunderkittens/kernels/based_attention.h has φ; without `normalize` o = φ(q)ᵀ S.) Memory-bound:
// the state, [F, V] floats, 39 KB of 153 features and 64 values, is read once and written once, and
// beside it the rest is little. A block has a head: the sums, which all columns of o are divided
// by, are then one block's to update. It takes the state in parts of some columns; each thread
// loads its runs of a part before it waits for the features, and keeps the sums of its columns' o
// in registers.
//
//   lanes     threads that have a row's columns of a part, a run each
//   groups    rows that the block loads side by side; a thread has rows group, group + groups, …
//
// The sums of a column over the rows have a fixed order: of a thread, of a warp, of the block.
#pragma once

#include <kittens.cuh>

#include "kernels/based_attention/based_attention.h"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kStepKeys = kBasedWidestKey;
inline constexpr int kStepFeatures = based_attention_features(kStepKeys);

// T: element type of q, k, v and o. Run: floats of the state that a thread moves at once. Columns:
// of a part. Rows: how many runs a thread has on their way.
template <class T, int Run, int Columns, int Rows>
struct based_attention_step_config {
  using type = T;
  static constexpr int run = Run, columns = Columns, rows = Rows;
  static constexpr int threads = 256, warps = threads / kWarp;
  static constexpr int lanes = Columns / Run, groups = threads / lanes;
  static_assert(lanes <= kWarp);
  static constexpr int min_blocks = 3;  // 80 registers a thread, 120 KB of states on their way
};

template <class Config>
struct based_attention_step_shared {
  float q[kStepKeys], k[kStepKeys];
  float of_q[kStepFeatures], of_k[kStepFeatures];  // φ
  float weights[Config::warps];                    // sums of φ(q) · z
  alignas(16) float sums[Config::warps][Config::columns];
};

// Feature i of x, which has `width` elements.
struct step_feature {
  int first, second;  // elements of x that are its factors; −1: none
  float weight;

  KITTENS_DEVICE step_feature(int i, int width, float scale, float root_of_scale)
      : first(-1), second(-1), weight(1.0f) {
    if (i == 0) return;
    first = i - 1;
    weight = root_of_scale;
    if (i <= width) return;
    int left = i - 1 - width;  // of the products, those of element 0 first
    for (first = 0; left >= width - first; ++first) left -= width - first;
    second = first + left;
    weight = left == 0 ? scale * kSqrtHalf : scale;
  }
  KITTENS_DEVICE float of(const float* x) const {
    const float a = first < 0 ? 1.0f : arch::load_shared(&x[first]);
    const float b = second < 0 ? 1.0f : arch::load_shared(&x[second]);
    return a * b * weight;
  }

 private:
  static constexpr float kSqrtHalf = 0.70710678f;
};

// What a block works on.
template <class Config>
struct based_step {
  using T = typename Config::type;
  using access = detail::run_access<float, Config::run>;
  using shared_memory = based_attention_step_shared<Config>;

  const based_attention_step_problem& p;
  const based_attention_step_tensors& t;
  shared_memory& shared;
  const int batch, head;
  const int group = arch::thread_id() / Config::lanes;
  const int lane_column = (arch::thread_id() - group * Config::lanes) * Config::run;
  const int features;
  lane_run<float, Config::run> runs[Config::rows] = {};

  KITTENS_DEVICE float* row(int i) const {
    return t.state + batch * p.state_stride + head * p.state_head_stride + i * p.state_row_stride;
  }
  KITTENS_DEVICE const T* of_head(const void* data,
                                  const based_attention_step_problem::strides& s) const {
    return static_cast<const T*>(data) + batch * s.batch + head * s.head;
  }

  KITTENS_DEVICE void load_runs(int first, int column) {
#pragma unroll
    for (int i = 0; i < Config::rows; ++i) {
      const int at = first + i * Config::groups;
      access::load(runs[i], row(at) + column, column < p.value_width && at < features);
    }
  }
  KITTENS_DEVICE void store_runs(int first, int column) const {
#pragma unroll
    for (int i = 0; i < Config::rows; ++i) {
      const int at = first + i * Config::groups;
      access::store(row(at) + column, runs[i], column < p.value_width && at < features);
    }
  }
  // Adds to the sums of the thread's columns of o.
  KITTENS_DEVICE void update_runs(const float (&v)[Config::run], float (&o)[Config::run],
                                  int first) {
#pragma unroll
    for (int i = 0; i < Config::rows; ++i) {
      // No branch, behind which the next row's loads would wait.
      const bool there = first + i * Config::groups < features;
      const int at = there ? first + i * Config::groups : 0;
      const float q = arch::load_shared(&shared.of_q[at]), k = arch::load_shared(&shared.of_k[at]);
      float s[Config::run];
      runs[i].get(s);
#pragma unroll
      for (int c = 0; c < Config::run; ++c) {
        s[c] = fmaf(k, v[c], s[c]);
        o[c] = there ? fmaf(q, s[c], o[c]) : o[c];
      }
      runs[i].set(s);
    }
  }

  KITTENS_DEVICE void load_keys() {
    const int i = arch::thread_id();
    if (i >= p.key_width) return;
    const T* const q = of_head(t.q, p.q_strides) + i * p.q_strides.element;
    const T* const k = of_head(t.k, p.k_strides) + i * p.k_strides.element;
    arch::store_shared(&shared.q[i], convert<float>(arch::load_global(q)));
    arch::store_shared(&shared.k[i], convert<float>(arch::load_global(k)));
  }
  // φ of q and k, and the sums; returns what o is divided by, once all threads have met.
  KITTENS_DEVICE float make_features(float scale, float root_of_scale, float eps) {
    const int i = arch::thread_id();
    static_assert(kStepFeatures <= Config::threads);
    float weight = 0.0f;
    if (i < features) {
      const step_feature feature(i, int(p.key_width), scale, root_of_scale);
      const float of_q = feature.of(shared.q), of_k = feature.of(shared.k);
      arch::store_shared(&shared.of_q[i], of_q);
      arch::store_shared(&shared.of_k[i], of_k);
      if (p.normalize) {
        float* const sum = t.sums + batch * p.sums_stride + head * p.sums_head_stride + i;
        const float next = arch::load_global(sum) + of_k;
        arch::store_global(sum, next);
        weight = of_q * next;
      }
    }
    weight = reduce_lanes([](float a, float b) { return a + b; }, weight);
    if (arch::lane_id() == 0) arch::store_shared(&shared.weights[arch::warp_id()], weight);
    arch::sync_block();
    if (!p.normalize) return 1.0f;
    float total = eps;
#pragma unroll
    for (int warp = 0; warp < Config::warps; ++warp) {
      total += arch::load_shared(&shared.weights[warp]);
    }
    return total;
  }

  // The columns of o of a part from the threads' sums.
  KITTENS_DEVICE void store_output(float (&sums)[Config::run], int first_column, float divisor) {
#pragma unroll
    for (int step = Config::lanes; step < kWarp; step *= 2) {
#pragma unroll
      for (float& sum : sums) sum += arch::shuffle_xor(sum, step);
    }
    if (arch::lane_id() < Config::lanes) {
      lane_run<float, Config::run> run;
      run.set(sums);
      access::store_shared(&shared.sums[arch::warp_id()][lane_column], run);
    }
    arch::sync_block();
    const int column = arch::thread_id();
    if (column < Config::columns && first_column + column < p.value_width) {
      float total = 0.0f;
#pragma unroll
      for (int warp = 0; warp < Config::warps; ++warp) {
        total += arch::load_shared(&shared.sums[warp][column]);
      }
      T* const o = static_cast<T*>(t.o) + (int64_t(batch) * p.heads + head) * p.value_width;
      arch::store_global(o + first_column + column, convert<T>(total / divisor));
    }
    arch::sync_block();  // the next part's sums take their place
  }

  KITTENS_DEVICE void run(float scale, float root_of_scale, float eps) {
    load_runs(group, lane_column);
    load_keys();
    arch::sync_block();
    const float divisor = make_features(scale, root_of_scale, eps);
    const T* const v_row = of_head(t.v, p.v_strides);
    for (int part = 0; part < p.value_width; part += Config::columns) {
      const int column = part + lane_column;
      float v[Config::run], sums[Config::run] = {};
#pragma unroll
      for (int c = 0; c < Config::run; ++c) {
        const bool inside = column < p.value_width;
        v[c] = inside
                   ? convert<float>(arch::load_global(v_row + (column + c) * p.v_strides.element))
                   : 0.0f;
      }
      for (int first = group; first < features; first += Config::rows * Config::groups) {
        if (part > 0 || first > group) load_runs(first, column);
        update_runs(v, sums, first);
        store_runs(first, column);
      }
      store_output(sums, part, divisor);
    }
  }
};

// Grid: batch · heads blocks. root_of_scale: √scale.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    based_attention_step(const __grid_constant__ based_attention_step_params params, float scale,
                         float root_of_scale, float eps) {
  begin_dependent_grid();
  const int heads = int(params.problem.heads), batch = arch::block_x() / heads;
  auto& shared = *reinterpret_cast<based_attention_step_shared<Config>*>(arch::dynamic_shared());
  based_step<Config> step{
      .p = params.problem,
      .t = params.tensors,
      .shared = shared,
      .batch = batch,
      .head = arch::block_x() - batch * heads,
      .features = int(based_attention_features(params.problem.key_width)),
  };
  step.run(scale, root_of_scale, eps);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
