// Runs of 16 bytes of a row, as a lane moves them, and what the trainer's kernels of rows share. No
// sum meets another in an atomic, so all have the same bits on every run.
#pragma once

#include <kittens/host/ceil_div.h>
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include "kernels.h"

namespace gpt2 {

using namespace kittens;
using host::ceil_div;

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
constexpr int kRun = 16 / int(sizeof(T));
template <class T>
constexpr int kSlice = 32 * kRun<T>;  // elements of a row that a warp moves

template <class T>
KITTENS_DEVICE void load(float (&values)[kRun<T>], const T* from) {
  lane_run<T, kRun<T>> run;
  detail::run_access<T, kRun<T>>::load(run, from, true);
  run.get(values);
}

template <class T>
KITTENS_DEVICE void store(T* to, const float (&values)[kRun<T>]) {
  lane_run<T, kRun<T>> run;
  run.set(values);
  detail::run_access<T, kRun<T>>::store(to, run, true);
}

template <class T>
KITTENS_DEVICE void add_run(float (&values)[kRun<T>], const lane_run<T, kRun<T>>& run) {
  float more[kRun<T>];
  run.get(more);
#pragma unroll
  for (int e = 0; e < kRun<T>; ++e) values[e] += more[e];
}

// values += what is at `from`
template <class T>
KITTENS_DEVICE void add_loaded(float (&values)[kRun<T>], const T* from) {
  lane_run<T, kRun<T>> run;
  detail::run_access<T, kRun<T>>::load(run, from, true);
  add_run(values, run);
}

// Calls f(T{}) with the element type.
template <class F>
void with_type(dtype type, F f) {
  if (type == dtype::float32) return f(float{});
  if (type == dtype::bfloat16) return f(bf16{});
  throw host::error("train_gpt2: tensors are float32 or bfloat16");
}

// The sum of each warp's values over the block, in warp 0, in the order of the warps.
template <int N>
KITTENS_DEVICE void add_warps(float (&values)[N]) {
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int warp = arch::warp_id(), lane = arch::lane_id();
#pragma unroll
  for (int e = 0; e < N; ++e) arch::store_shared(shared + (warp * N + e) * 32 + lane, values[e]);
  arch::sync_block();
  if (warp == 0) {
    for (int w = 1; w < kWarps; ++w) {
#pragma unroll
      for (int e = 0; e < N; ++e) values[e] += arch::load_shared(shared + (w * N + e) * 32 + lane);
    }
  }
  arch::sync_block();
}

template <class T>
constexpr int64_t kSharedBytes = kWarps * kSlice<T> * sizeof(float);

}  // namespace gpt2
