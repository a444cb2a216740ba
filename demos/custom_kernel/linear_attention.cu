// Causal linear attention: o[t] = Σ_{s ≤ t} (q[t] · k[s]) v[s], for [heads, length, 64] in bf16. A
// block has a head, and does 64 tokens at a time: their own weights, as attention without softmax,
// and all tokens before them by one matrix, state = Σ k[s]ᵀ v[s], which stays in registers in
// float.
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include "kernels.h"

using namespace kittens;

constexpr int kStages = 3, kThreads = 128 + 32;  // a warpgroup that computes, a warp that loads
using chunk = st_bf<64, 64>;

struct linear_attention_params {
  tma_map<chunk> q, k, v, o;
  int chunks;
};

struct linear_attention_shared {
  chunk q[kStages], k[kStages], v[kStages];
  chunk state, o;
  ring<kStages> stages;
};

__global__ void __launch_bounds__(kThreads, 2)
    linear_attention_kernel(const __grid_constant__ linear_attention_params p) {
  auto& s = *reinterpret_cast<linear_attention_shared*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.stages.init(1);
  arch::sync_block();
  const int head = arch::block_x();
  cursor<kStages> at;

  if (warpgroupid() == 1) {
    if (!arch::elect_one()) return;
    for (int i = 0; i < p.chunks; ++i, at.advance()) {
      semaphore& full = s.stages.full[at.stage];
      const coord from = {.d = head, .r = i};
      s.stages.wait_empty(at);
      s.stages.expect(at, 3 * tma::bytes<chunk>);
      tma::load_async(s.q[at.stage], p.q, full, from);
      tma::load_async(s.k[at.stage], p.k, full, from);
      tma::load_async(s.v[at.stage], p.v, full, from);
    }
    return;
  }

  const bool leads = arch::thread_id() == 0;
  rt_fl<16, 64> state, scores, o;
  rt_bf<16, 64> weights;
  zero(state);
  for (int i = 0; i < p.chunks; ++i, at.advance()) {
    if (leads) tma::store_async_read_wait<0>();  // the chunk before has left
    warpgroup::store(s.state, state);            // rounded to bf16
    warpgroup::sync(1);
    s.stages.wait_full(at);
    warpgroup::mma_fence();
    warpgroup::mm_ABt(scores, s.q[at.stage], s.k[at.stage]);
    warpgroup::mm_AB(o, s.q[at.stage], s.state);
    warpgroup::mma_commit_group();
    warpgroup::mma_fence();
    warpgroup::mma_AtB(state, s.k[at.stage], s.v[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<1>();  // scores and o
    warpgroup::tril(scores, scores, 0, 0.0f);
    copy(weights, scores);
    warpgroup::mma_fence();
    warpgroup::mma_AB(o, weights, s.v[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>();
    if (leads) s.stages.release_after_mma(at);
    warpgroup::store(s.o, o);
    warpgroup::sync(1);
    if (leads) {
      tma::store_async(p.o, s.o, {.d = head, .r = i});
      tma::store_commit_group();
    }
  }
  if (leads) tma::store_async_read_wait<0>();
}

void linear_attention(const attention_tensors& x, cudaStream_t stream) {
  const auto map = [&](const void* y) {
    return tma_map<chunk>::of(
        gl<bf16>{(bf16*)y, 1, x.heads, x.length, 64, 0, int64_t{x.length} * 64, 64});
  };
  const linear_attention_params p = {map(x.q), map(x.k), map(x.v), map(x.o), (x.length + 63) / 64};
  host::launch(linear_attention_kernel, {{x.heads}, {kThreads}, sizeof(linear_attention_shared)},
               stream, p);
}
