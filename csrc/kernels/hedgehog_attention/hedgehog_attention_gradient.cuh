// hedgehog attention, backward, by blocks of 64 tokens. With p, e(i, j) = p / beta, S and z as in
// hedgehog_attention_forward.cuh, N and D the numerator and denominator of y = N / D, and
//
//   r(i) = 1 / D(i),  delta(i) = dy(i) · y(i)
//   da(i, j) = r(i) (dy(i) · v(j) − delta(i))      the gradient of a weight, in window or before it
//
// the window gives, with c(i) the number of scores that are the largest of their row,
//
//   ds(i, j) = p(i, j) da(i, j) − [s(i, j) is the largest] Σ(j') p(i, j') da(i, j') / c(i)
//   dq(i) += Σ(j) ds(i, j) k(j),  dk(j) += Σ(i) ds(i, j) q(i),  dv(j) += Σ(i) p(i, j) r(i) dy(i)
//
// and what lies before it, with dS = Σ alpha φ(q(i)) r(i) dy(i)ᵀ and dz = −Σ alpha φ(q(i)) r(i)
// delta(i) over the queries that have a key in their state,
//
//   dφ(q(i)) = alpha r(i) (S dy(i) − delta(i) z),  dφ(k(j)) = dS v(j) + dz,  dv(j) += dSᵀ φ(k(j))
//   dx W += dl, dl = φ₊ ∘ (dφ₊ − φ₊ · dφ₊) − φ₋ ∘ (dφ₋ − φ₋ · dφ₋);  dx += dl Wᵀ,  dW += xᵀ dl
//
// The sums over j of a row's weights, of window and state apart, and of their products with dy give
// D, delta, and the gradients of alpha and beta: with w and w' those of the window, without beta,
// and l and l' those of the state, without alpha, and x = Σ r² (w' l − l' w), these are −beta x and
// alpha x; and Σ p da of a row is alpha beta times its part of x. So the forward saves nothing.
//
// A block of threads has a head: all of its blocks of tokens, or a run of them. The state stays in
// registers, in float32; products take a 16-bit copy in shared memory:
//
//   queries     from the first block to the last, with S: dq of block b, from k and v of blocks
//               b − 1 and b, and S of the key blocks to b − 2; then block b − 1 enters. Factors of
//               the rows: r, delta and what else a weight's gradient takes
//   keys        from the last block to the first, with dS: dk, dv of block j, from q and dy of
//               blocks j and j + 1, and dS of the query blocks from j + 2 on; then block j + 1
//               enters
//   finish      gradients of maps and weights, which blocks of threads have left in parts
//
// Where heads are few, runs are worked on side by side: a launch before each pass, without outputs,
// leaves what the blocks that enter in a part of a run add to the state, another one adds that up,
// in order (hedgehog_attention_state_passing.cuh), and a run begins with the sum of what comes
// before it. The generic kernel keeps a state for each block instead.
//
// Four warpgroups have a step at a time, with 128 registers a thread:
//
//   window    two, one for each block of the window: weights and the gradients of scores; half of
//             the columns of dq, or of dk and dv, whose sums are over both blocks and softmaxes
//   features  two, one for each softmax: features and the gradients of logits; half of the rows of
//             the map's gradient, whose sums are over both softmaxes; features of what enters
//
// W says which block, or softmax. Of the state of a softmax both its warpgroup and the window's of
// that number have half of the values. What they make they leave each other in shared memory as
// 16-bit operands; where they meet, and who waits for whom: gradient_base. Both passes have scores
// as [queries, keys], of the same products in the same order, so that the largest are the same
// bits. All sums have a fixed order. Tiles are requested as soon as nobody reads what they replace:
// the rows and the window when their last products are done, so that they come while the state
// takes in its block. (What the passes of one part of a run add to the state, without outputs, two
// warpgroups find, one for each softmax.)
//
// Source: Zhang et al., LoLCATs (2024), section 3.2, differentiated.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_features.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_gradient_parts.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_gradient_window.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    hedgehog_attention_gradient(const __grid_constant__ hedgehog_gradient_arguments<Config> p) {
  auto& s = *reinterpret_cast<hedgehog_attention_gradient_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.run = block_run::of<Config>(p);
    for (semaphore* full :
         {&s.map_full, &s.rows_full, &s.row_values_full, &s.window_full, &s.window_values_full}) {
      init_semaphore(*full, 1);
    }
  }
  arch::sync_block();
  if constexpr (!Config::outputs) {
    part_state_walk<Config>(p, s).consume();
  } else if (warpgroupid() < kConsumers) {
    window_walk<Config>(p, s).consume();
  } else {
    feature_walk<Config>(p, s).consume();
  }
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
