// hedgehog attention, forward, by blocks of 64 tokens:
//
//   q, k [B, S, H, D], v, y [B, S, H, E], maps [H, D, 64], φ(x) = [softmax(x W), softmax(−x W)]
//
//   p(i, j) = beta · exp(s(i, j) − max s(i, ·))   keys of the block before i's, and of its own to i
//   y(i) = (Σ p(i, j) v(j) + alpha Sᵀ φ(q(i))) / (Σ p(i, j) + alpha z · φ(q(i)))
//   S = Σ φ(k(j)) v(j)ᵀ, z = Σ φ(k(j))            keys before
//
// A block of threads has a head: all of its sequence, or a segment. It takes two blocks of queries
// a step, one for each of its two warpgroups, which then have a window of 128 keys each; so the
// maximum is that of a row of accumulators, exact, and nothing is rescaled. Both use the state at
// the step's begin. For the second block it lacks one block of keys, whose products with φ(q) the
// second warpgroup takes as weights, beside those of the window:
//
// clang-format off
//
//   keys, counted from the block before the first query
//     2i          2i + 1       2i + 2
//   ┌───────────┬────────────┐
//   │ window    │ window ◣   │              queries 2i, by warpgroup 0; the state has keys to 2i − 1
//   ├───────────┼────────────┼────────────┐
//   │ φ(q) φ(k) │ window     │ window ◣   │ queries 2i + 1, by warpgroup 1
//   └───────────┴────────────┴────────────┘
//     enter the state at the step's end
//
// clang-format on
// Each warpgroup computes the features of one of the two blocks that enter. The state stays in
// registers: warpgroup 0 has the features of the first softmax, [64, E] with the values, and
// warpgroup 1 those of the other. What products take of it is a 16-bit copy in shared memory. One
// thread has tiles brought by TMA, as soon as all have read what they replace: queries and keys
// from the middle of a step, values from its end.
//
// Where heads are few, segments run side by side: a first launch, without outputs, leaves the
// states that parts of them add, a second one adds those up (hedgehog_attention_state_passing.cuh),
// and a third one begins each segment with the sum of those before it. The additions are in order:
// results are the same bits on every run.
//
// Source: Zhang et al., The Hedgehog and the Porcupine (2024), section 4; Zhang et al., LoLCATs
// (2024), section 3.2.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_consumer.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    hedgehog_attention_forward(const __grid_constant__ hedgehog_arguments<Config> p) {
  auto& s = *reinterpret_cast<hedgehog_attention_forward_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.stream = block_stream::of<Config>(p);
    init_semaphore(s.maps_full, 1);
    for (semaphore& full : s.q_full) init_semaphore(full, 1);
    for (semaphore& full : s.k_full) init_semaphore(full, 1);
    for (semaphore& full : s.v_full) init_semaphore(full, 1);
  }
  arch::sync_block();
  if (warpgroupid() == 0) {
    hedgehog_consumer<Config, 0>(p, s).consume();
  } else {
    hedgehog_consumer<Config, 1>(p, s).consume();
  }
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
