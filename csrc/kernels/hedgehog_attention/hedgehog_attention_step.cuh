// hedgehog attention, one token: what enters the state is read and written once. Of any sizes: most
// are taken by hedgehog_attention_step_vectors.cuh, which is faster.
//
// A block of threads has a head. The token that leaves the window of 64, whose place in the caches
// the new one takes, enters the state: S += φ(k) vᵀ, z += φ(k). Then
//
//   y = (Σ p(j) v(j) + alpha Sᵀ φ(q)) / (Σ p(j) + alpha z · φ(q)),   p = beta · exp(s − max s)
//
// over the keys of the caches. A thread has columns of S, of the caches' values and of y.
#pragma once

#include <kittens.cuh>

#include "kernels/hedgehog_attention/hedgehog_attention.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kStepThreads = 128, kStepWarps = kStepThreads / kWarp;
inline constexpr int kWindow = kHedgehogBlock;
inline constexpr int kMostColumns = kHedgehogStepWidth;

struct hedgehog_step_shared {
  float q[kMostColumns], leaving[kMostColumns];  // q, and k of the token that leaves the window
  float logits[2][kMostColumns / 2];             // of q and of k
  float features[2][kMostColumns];
  float weights[kWindow];
  float sums[kStepWarps];
};

struct hedgehog_step_arguments {
  hedgehog_attention_step_tensors tensors;
  hedgehog_attention_step_problem::strides q_strides, k_strides, v_strides;
  int heads, keys, values, columns;  // H, D, E, F
};

template <class T>
class hedgehog_step {
 public:
  KITTENS_DEVICE hedgehog_step(const hedgehog_step_arguments& p, hedgehog_step_shared& s)
      : p(p),
        s(s),
        batch(arch::block_x() / p.heads),
        head(arch::block_x() % p.heads),
        length(arch::load_global(p.tensors.length + batch)) {}

  KITTENS_DEVICE void run() {
    take_keys();
    arch::sync_block();
    multiply_by_maps();
    score();
    arch::sync_block();
    soften_features();
    const float largest = largest_score();
    arch::sync_block();  // all have read the scores
    const float beta = arch::load_global(p.tensors.beta + head);
    float total = 0;
    if (thread() < count()) {
      total = beta * arch::exp2_approx((s.weights[thread()] - largest) * kLog2e);
      s.weights[thread()] = total;
    }
    total += arch::load_global(p.tensors.alpha + head) * update_sum();
    total = reduce_lanes([](float a, float b) { return a + b; }, total);
    if (arch::lane_id() == 0) s.sums[arch::warp_id()] = total;
    arch::sync_block();
    total = 0;
    for (int w = 0; w < kStepWarps; ++w) total += s.sums[w];
    for (int e = thread(); e < p.values; e += kStepThreads) attend(e, total);
  }

 private:
  const hedgehog_step_arguments& p;
  hedgehog_step_shared& s;
  const int batch, head;
  const int64_t length;

  KITTENS_DEVICE static int thread() { return arch::thread_id(); }
  KITTENS_DEVICE bool leaves() const { return length >= kWindow; }  // some token the window
  KITTENS_DEVICE int count() const { return length < kWindow ? int(length) + 1 : kWindow; }
  KITTENS_DEVICE int64_t stream() const { return int64_t{batch} * p.heads + head; }
  KITTENS_DEVICE static float read(const void* data, int64_t i) {
    return convert<float>(arch::load_global(static_cast<const T*>(data) + i));
  }
  // Row `place` of a cache, of this head.
  template <class U>
  KITTENS_DEVICE U* row_of(U* cache, int place, int width) const {
    return cache + ((int64_t{batch} * kWindow + place) * p.heads + head) * width;
  }
  KITTENS_DEVICE int place() const { return int(length % kWindow); }

  // q and the key that leaves, to shared memory; the new key takes its place.
  KITTENS_DEVICE void take_keys() {
    T* const cached = row_of(static_cast<T*>(p.tensors.k_cache), place(), p.keys);
    const int64_t q = batch * p.q_strides.batch + head * p.q_strides.head;
    const int64_t k = batch * p.k_strides.batch + head * p.k_strides.head;
    for (int i = thread(); i < p.keys; i += kStepThreads) {
      s.q[i] = read(p.tensors.q, q + i);
      s.leaving[i] = read(cached, i);
      arch::store_global(cached + i, arch::load_global(static_cast<const T*>(p.tensors.k) + k + i));
    }
  }
  KITTENS_DEVICE void multiply_by_maps() {
    for (int i = thread(); i < 2 * p.columns; i += kStepThreads) {
      const bool of_k = i >= p.columns;
      const int column = of_k ? i - p.columns : i;
      const float* const x = of_k ? s.leaving : s.q;
      const int64_t map = int64_t{head} * p.keys * p.columns + column;
      float logit = 0;
#pragma unroll 8
      for (int j = 0; j < p.keys; ++j) {
        const int64_t at = map + int64_t{j} * p.columns;
        logit = fmaf(x[j], read(of_k ? p.tensors.k_map : p.tensors.q_map, at), logit);
      }
      s.logits[of_k][column] = logit;
    }
  }
  // q · k / √D of the window.
  KITTENS_DEVICE void score() {
    const float scale = arch::rsqrt_approx(float(p.keys));
    for (int j = arch::warp_id(); j < count(); j += kStepWarps) {
      const T* const k = row_of(static_cast<const T*>(p.tensors.k_cache), j, p.keys);
      float sum = 0;
      for (int i = arch::lane_id(); i < p.keys; i += kWarp) sum = fmaf(s.q[i], read(k, i), sum);
      sum = reduce_lanes([](float a, float b) { return a + b; }, sum);
      if (arch::lane_id() == 0) s.weights[j] = sum * scale;
    }
  }
  // Each of four softmaxes by a warp: of q and of k, of x and of −x.
  KITTENS_DEVICE void soften_features() {
    static_assert(kStepWarps == 4);
    const int which = arch::warp_id() / 2, softmax = arch::warp_id() % 2;
    const float sign = softmax == 0 ? kLog2e : -kLog2e;
    float largest = -INFINITY, sum = 0;
    for (int i = arch::lane_id(); i < p.columns; i += kWarp) {
      largest = fmaxf(largest, sign * s.logits[which][i]);
    }
    largest = reduce_lanes([](float a, float b) { return fmaxf(a, b); }, largest);
    for (int i = arch::lane_id(); i < p.columns; i += kWarp) {
      sum += arch::exp2_approx(sign * s.logits[which][i] - largest);
    }
    sum = reduce_lanes([](float a, float b) { return a + b; }, sum);
    const float scale = arch::reciprocal_approx(sum);
    for (int i = arch::lane_id(); i < p.columns; i += kWarp) {
      s.features[which][softmax * p.columns + i] =
          scale * arch::exp2_approx(sign * s.logits[which][i] - largest);
    }
  }
  KITTENS_DEVICE float largest_score() const {
    float largest = -INFINITY;
    for (int j = 0; j < count(); ++j) largest = fmaxf(largest, s.weights[j]);
    return largest;
  }
  // z += φ(k), and this thread's part of z · φ(q).
  KITTENS_DEVICE float update_sum() {
    float part = 0;
    float* const sums = p.tensors.k_state + stream() * 2 * p.columns;
    for (int f = thread(); f < 2 * p.columns; f += kStepThreads) {
      float z = arch::load_global(sums + f);
      if (leaves()) arch::store_global(sums + f, z += s.features[1][f]);
      part = fmaf(s.features[0][f], z, part);
    }
    return part;
  }
  // Column e of y and of the state.
  KITTENS_DEVICE void attend(int e, float total) {
    T* const cached = row_of(static_cast<T*>(p.tensors.v_cache), place(), p.values) + e;
    const float leaving = convert<float>(arch::load_global(cached));
    const int64_t v = batch * p.v_strides.batch + head * p.v_strides.head + e;
    arch::store_global(cached, arch::load_global(static_cast<const T*>(p.tensors.v) + v));
    float* const state = p.tensors.kv_state + stream() * 2 * p.columns * p.values + e;
    float linear = 0, window = 0;
    if (leaves()) {
#pragma unroll 16
      for (int f = 0; f < 2 * p.columns; ++f) {
        float* const at = state + int64_t{f} * p.values;
        const float x = fmaf(s.features[1][f], leaving, arch::load_global(at));
        arch::store_global(at, x);
        linear = fmaf(s.features[0][f], x, linear);
      }
    } else {
      for (int f = 0; f < 2 * p.columns; ++f) {
        linear = fmaf(s.features[0][f], arch::load_global(state + int64_t{f} * p.values), linear);
      }
    }
    const T* const values = static_cast<const T*>(p.tensors.v_cache);
#pragma unroll 8
    for (int j = 0; j < count(); ++j) {
      window = fmaf(s.weights[j], read(row_of(values, j, p.values), e), window);
    }
    const float alpha = arch::load_global(p.tensors.alpha + head);
    arch::store_global(static_cast<T*>(p.tensors.y) + stream() * p.values + e,
                       convert<T>(fmaf(alpha, linear, window) * arch::reciprocal_approx(total)));
  }
};

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    hedgehog_attention_step(const __grid_constant__ hedgehog_step_arguments p) {
  auto& s = *reinterpret_cast<hedgehog_step_shared*>(arch::dynamic_shared());
  hedgehog_step<T>(p, s).run();
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
