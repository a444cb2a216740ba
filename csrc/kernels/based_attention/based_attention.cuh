// based_attention for Hopper, chunkwise:
//
//   y(i) = Σ(j ≤ i) A(i, j) v(j) / D(i),   A = 1 + s + s²/2,   s = scale · q(i) · k(j)
//   D(i) = Σ(j ≤ i) A(i, j) + eps, or 1
//
//   q, k [B, S, H, D], v, o [B, S, H, V], states [B, H, F, V], sums [B, H, F]
//
// A chunk is 64 tokens. Within it weights are made of scores, as in softmax attention; what came
// before it is the state S = Σ φ(k(j)) v(j)ᵀ, for A(i, j) = φ(q(i)) · φ(k(j)):
//
//   o(i) = Sᵀ φ(q(i)) + Σ(j ≤ i in the chunk) A(i, j) v(j),    S += Σ(j in the chunk) φ(k(j)) v(j)ᵀ
//
// φ has a column for each pair of elements, not two (based_attention_features.cuh). Features of
// rows are made in registers, as the left side of a product; features of what the state is made of
// are written into shared memory, as its right side. D is summed in float32, from the same weights
// and from sums of k (based_attention_sums.cuh).
//
// Gradients are two more passes (based_attention_gradient.cuh). dq goes forward with S once more,
// and leaves 1 / D and the gradient of D of each row; dk and dv go from the last chunk to the
// first, with the state dS = Σ φ(q(i)) (do(i) / D(i))ᵀ. The gradient of features, of a row S do,
// is 32 columns at a time made one of x (based_attention_contraction.cuh).
//
// A block is one warpgroup. It has 64 columns of a head's v and o: all of its sequence, or a
// segment. The state, transposed [64, 160], never leaves its registers but as a 16-bit operand of
// the next chunk's products. One thread has the chunks brought by TMA, some ahead.
//
// Where heads are few, segments run side by side: a first launch, without outputs, leaves the state
// that each of them adds, from zero; a second one begins each segment with those of the segments
// before. The additions are in order: results are the same bits on every run.
//
// Source: Arora et al., Simple linear attention language models balance the recall-throughput
// tradeoff (2024).
#pragma once

#include "kernels/based_attention/based_attention_pass.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    based_attention(const __grid_constant__ based_attention_arguments<Config> p) {
  auto& s = *reinterpret_cast<based_attention_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.chunks.init(1);
  arch::sync_block();
  pass_walk<Config>(p, s).consume();
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
