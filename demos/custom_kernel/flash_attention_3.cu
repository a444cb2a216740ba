// Attention after FlashAttention-3: o = softmax(q kᵀ / √D) v, D 64 or 128, causal or not. A
// producer asks TMA for all tiles; two or three warpgroups of consumers, 64 rows of q each, have
// wgmma multiply them, and are at their softmax while it works on their o and others' scores.
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include "kernels.h"

using namespace kittens;

template <int D>
struct fa3 {
  static constexpr int consumers = D == 64 ? 3 : 2, threads = 128 * (consumers + 1);
  static constexpr int rows = 64 * consumers, keys = 128, stages = 2 * consumers;
  static constexpr float scale = kLog2e * (D == 64 ? 0.125f : 0.0883883476f);  // log2 e / √D
  struct params {
    tma_map<st_bf<64, D>> q, o;
    tma_map<st_bf<keys, D>> kv[2];
    tile_scheduler tiles;
    int length;
  };
  struct shared {
    st_bf<64, D> q[consumers];  // and then o
    st_bf<keys, D> kv[stages];  // keys, values, the next keys …
    ring<stages> kv_ring;
  };
};

template <int D, bool Causal>
__global__ void __launch_bounds__(fa3<D>::threads, 1)
    fa3_kernel(const __grid_constant__ typename fa3<D>::params p) {
  using is = fa3<D>;
  auto& s = *reinterpret_cast<typename is::shared*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.kv_ring.init(is::consumers);
  arch::sync_block();
  const auto [m, head, batch] = p.tiles.place(arch::block_x());
  const int end = (m + 1) * is::rows, seen = Causal && end < p.length ? end : p.length;  // keys
  const int w = warpgroupid() - 1, steps = (seen + is::keys - 1) / is::keys;
  cursor<is::stages> k_at, v_at = {.stage = 1};

  if (w < 0) {
    warpgroup::lower_registers<D == 64 ? 32 : 24>();
    if (warpid() != 0 || !arch::elect_one()) return;
    for (int i = 0; i < 2 * steps; ++i, k_at.advance()) {
      semaphore& full = s.kv_ring.full[k_at.stage];
      s.kv_ring.wait_empty(k_at);
      s.kv_ring.expect(k_at, sizeof(s.kv[0]) + (i == 0 ? sizeof(s.q) : 0));
      for (int j = 0; i == 0 && j < is::consumers; ++j) {  // q comes with the first keys
        tma::load_async(s.q[j], p.q, full, {.d = head, .r = m * is::consumers + j});
      }
      tma::load_async(s.kv[k_at.stage], p.kv[i % 2], full, {.d = head, .r = i / 2});
    }
    return;
  }

  warpgroup::raise_registers<D == 64 ? 160 : 240>();  // o, scores and weights are 128, and 160
  using order = ordered_barrier<is::consumers>;       // whose products are next
  const int first_row = m * is::rows + w * 64, barrier = 1 + is::consumers + w;
  const bool leads = warpgroup::laneid() == 0;
  rt_fl<16, is::keys> scores;
  rt_bf<16, is::keys> weights;
  rt_fl<16, D> o;
  typename rt_fl<16, D>::col_vec maximum, sum, shrink;  // one value per row
  neg_infty(maximum);
  zero(sum);
  zero(o);

  const auto issue_scores = [&] {
    s.kv_ring.wait_full(k_at);
    warpgroup::mma_fence();
    warpgroup::mm_ABt(scores, s.q[w], s.kv[k_at.stage]);
    warpgroup::mma_commit_group();
  };
  const auto issue_o = [&] {
    s.kv_ring.wait_full(v_at);
    warpgroup::mma_fence();
    warpgroup::mma_AB(o, weights, s.kv[v_at.stage]);
    warpgroup::mma_commit_group();
  };
  const auto release = [&](cursor<is::stages>& at) {  // … and on to the next step's
    if (leads) s.kv_ring.release_after_mma(at);
    at.advance();
    at.advance();
  };

  issue_scores();
  warpgroup::mma_async_wait<0>();
  order::start(w);
  for (int step = 0;;) {
    release(k_at);
    const int first_key = step * is::keys;
    right_fill(scores, scores, p.length - first_key, -INFINITY);
    if (Causal) warpgroup::tril(scores, scores, first_row - first_key, -INFINITY);
    copy(shrink, maximum);
    row_max(maximum, scores, maximum);  // finite: all rows see key 0
    map([](float x, float y) { return arch::exp2_approx((x - y) * is::scale); }, shrink, shrink,
        maximum);  // what all before is worth under the new maximum
    map_rows([](float x, float y) { return arch::exp2_approx(fmaf(x, is::scale, -y * is::scale)); },
             scores, scores, maximum);
    mul(sum, sum, shrink);
    partial_row_sum(sum, scores, sum);
    warpgroup::mma_async_wait<0>();  // o
    if (step > 0) release(v_at);
    copy(weights, scores);
    mul_row(o, o, shrink);
    if (++step == steps) break;
    order::wait(w);
    issue_scores();
    issue_o();  // of the step before
    order::arrive(w);
    warpgroup::mma_async_wait<1>();  // the scores
  }
  order::finish(w);
  issue_o();
  finish_row_sum(sum);
  warpgroup::mma_async_wait<0>();
  map_rows([](float x, float y) { return x * arch::reciprocal_approx(y); }, o, o, sum);
  warpgroup::sync(barrier);  // q has been read
  warpgroup::store(s.q[w], o);
  warpgroup::sync(barrier);
  if (!leads) return;
  tma::store_async(p.o, s.q[w], {.d = head, .r = m * is::consumers + w});
  tma::store_commit_group();
  tma::store_async_read_wait<0>();
}

template <int D, bool Causal>
void launch_fa3(const attention_tensors& x, cudaStream_t stream) {
  using is = fa3<D>;
  const auto set = [&]<class Tile>(tma_map<Tile>& to, const void* y) {
    to =
        tma_map<Tile>::of(gl<bf16>{(bf16*)y, 1, x.heads, x.length, D, 0, int64_t{x.length} * D, D});
  };
  typename is::params p{.length = x.length};
  set(p.q, x.q);
  set(p.kv[0], x.k);
  set(p.kv[1], x.v);
  set(p.o, x.o);
  const int tiles = (x.length + is::rows - 1) / is::rows;  // causal: the longest first, of 8 heads
  p.tiles = {tiles, x.heads, 1, Causal, Causal && x.heads > 8 ? 8 : 1};
  host::launch(fa3_kernel<D, Causal>,
               {{p.tiles.count()}, {is::threads}, sizeof(typename is::shared)}, stream, p);
}

void flash_attention_3(const attention_tensors& x, int head_dim, bool causal, cudaStream_t stream) {
  const auto launch = head_dim == 64 ? (causal ? launch_fa3<64, true> : launch_fa3<64, false>)
                                     : (causal ? launch_fa3<128, true> : launch_fa3<128, false>);
  launch(x, stream);
}
