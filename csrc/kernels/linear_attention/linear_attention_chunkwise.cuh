// linear attention, chunkwise:
//
//   S(t) = e^g(t) S(t − 1) + k(t) v(t)ᵀ,   o(t) = scale · S(t)ᵀ q(t)
//
//   q, k [B, S, H, K], v, o [B, S, H, V], g [B, S, H], states [B, H, K, V]
//
// With L(i), the sum of g over a chunk's tokens up to i, and C its last token, a chunk of 64 is
//
//   o(i) = scale · (e^L(i) Sᵀ q(i) + Σ(j ≤ i) e^(L(i) − L(j)) (q(i) · k(j)) v(j))
//   S    = e^L(C) S + Σ(j) e^(L(C) − L(j)) k(j) v(j)ᵀ
//
// No exponent is above 0 where no g is. (Chunks that decay little take e^(L(C) − L(j)) for their
// scores too, and e^(L(i) − L(C)) for o's rows at last: linear_attention_decays.cuh.) In reverse,
// from the last chunk to the first, a token's own decay is that of what comes after it:
//
//   o(i) = scale · (e^(L(C) − L(i)) Sᵀ q(i) + Σ(j ≥ i) e^(L(j) − L(i)) (q(i) · k(j)) v(j))
//   S    = e^L(C) S + Σ(j) e^L(j) k(j) v(j)ᵀ
//
// That is what gradients are made of. With dS, the gradient of the state,
//
//   dq   forward, with do, v and k as q, k and v; the states transposed
//   dk   in reverse, with v, do and q; from the final state's gradient to the initial one's
//   dv   in reverse, with k, q and do; the same, transposed
//
// and g's are sums over q · dq − k · dk of each token, which are left beside dq and dk (`dots`),
// from one anchor to the next, where they are ⟨S, dS⟩: dq's launch leaves the states of anchors to
// dk's (linear_attention_anchors.cuh).
//
// With weights w, a token adds w k vᵀ: log w is part of its exponents as column j, and w may be 0.
// The weights of dk and dv are those of o's rows, where `dots` are taken before: v · dv without
// them is the weight's gradient. What skips, o += skip · v, is added to o at the end.
//
// A block has a head, or two that share q and k: all of their sequence, or a segment. Each of its
// warpgroups, the consumers, has 64 columns of a head's v and o. The state, Sᵀ [64, K], never
// leaves its registers but as a 16-bit operand of the next chunk's product. One thread has the
// chunks brought by TMA, some ahead.
//
// Where heads are few, segments run side by side: a first launch, without outputs, leaves the state
// that each part of a sequence adds, from zero, and its decay; a second one begins each segment
// with those of the parts before. The additions are in order: results are the same bits on every
// run. A block without outputs needs less, so that there are more of them: a segment is of several
// parts.
//
// Source: Sun et al., Retentive Network (2023), section 2.3; Yang et al., Gated Linear Attention
// (2023), section 4; Dao and Gu, Transformers are SSMs (2024), section 6.
#pragma once

#include "kernels/linear_attention/linear_attention_consumer.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    linear_attention_chunkwise(const __grid_constant__ linear_attention_arguments<Config> p) {
  auto& s = *reinterpret_cast<linear_attention_chunkwise_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.chunks.init(Config::consumers);
    if constexpr (Config::outputs) {
      for (semaphore& dotted : s.dotted) init_semaphore(dotted, 1);
    }
  }
  find_streams(p, s);
  arch::sync_block();
  linear_attention_consumer<Config>(p, s, warpgroupid()).consume();
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
