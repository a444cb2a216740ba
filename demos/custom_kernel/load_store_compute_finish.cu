// The same attention with a duty for each warp. One loads: a lane of it asks TMA for keys and
// values, as many steps ahead as the ring has stages. Eight compute, 32 rows of q each, finish
// their rows, and have TMA store them while they are at the next tile.
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include "kernels.h"

using namespace kittens;

constexpr int kWarps = 8, kStages = 4, kThreads = 32 * (kWarps + 4);  // three of them have no duty
constexpr float kScale = 0.125f * kLog2e;  // 1 / √64; and exp(x) = 2^(x · log2 e)
using kv_tile = st_bf<64, 64>;
using o_tile = st_bf<32, 64>;

struct lscf_params {
  gl<bf16> q;
  tma_map<kv_tile> k, v;
  tma_map<o_tile> o;
  tile_scheduler tiles;  // of 256 rows
};

struct lscf_shared {
  kv_tile k[kStages], v[kStages];
  o_tile o[kWarps];
  ring<kStages> stages;
};

struct lscf_rows {  // of a warp, in its registers
  rt_bf<32, 64> q;
  rt_fl<32, 64> o;
  rt_fl<32, 64>::col_vec top, sum;  // the largest score; Σ 2^(score − top), each lane's part
};

KITTENS_DEVICE void load_kv(const lscf_params& p, lscf_shared& s, cursor<kStages> at, coord from) {
  s.stages.wait_empty(at);
  s.stages.expect(at, 2 * tma::bytes<kv_tile>);
  tma::load_async(s.k[at.stage], p.k, s.stages.full[at.stage], from);
  tma::load_async(s.v[at.stage], p.v, s.stages.full[at.stage], from);
}

KITTENS_DEVICE void compute(lscf_rows& r, const kv_tile& k, const kv_tile& v) {
  rt_fl<32, 64> scores;
  rt_bf<32, 64> weights;
  rt_fl<32, 64>::col_vec shrink;  // to what it is worth under a new maximum
  mm_ABt(scores, r.q, k);
  copy(shrink, r.top);
  row_max(r.top, scores, r.top);
  map([](float x, float y) { return arch::exp2_approx((x - y) * kScale); }, shrink, shrink, r.top);
  map_rows([](float x, float y) { return arch::exp2_approx(fmaf(x, kScale, -y * kScale)); }, scores,
           scores, r.top);
  mul(r.sum, r.sum, shrink);
  partial_row_sum(r.sum, scores, r.sum);
  copy(weights, scores);
  mul_row(r.o, r.o, shrink);
  mma_AB(r.o, weights, v, r.o);
}

KITTENS_DEVICE void finish(lscf_rows& r, o_tile& o) {
  finish_row_sum(r.sum);
  map_rows([](float x, float y) { return x * arch::reciprocal_approx(y); }, r.o, r.o, r.sum);
  if (laneid() == 0) tma::store_async_read_wait<0>();  // the rows before have left
  arch::sync_warp();
  store(o, r.o);
  arch::sync_warp();
}

__global__ void __launch_bounds__(kThreads, 1) lscf(const __grid_constant__ lscf_params p) {
  auto& s = *reinterpret_cast<lscf_shared*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.stages.init(kWarps);
  arch::sync_block();
  const int steps = int(p.q.rows) / 64;
  cursor<kStages> at;
  if (warpgroupid() == 2) {
    warpgroup::lower_registers<24>();
    if (warpid() != kWarps || !arch::elect_one()) return;
    for (tile_walk tile(p.tiles); tile.valid(); tile.next()) {
      for (int step = 0; step < steps; ++step, at.advance()) {
        load_kv(p, s, at, {.d = tile.place().head, .r = step});
      }
    }
    return;
  }
  warpgroup::raise_registers<240>();
  for (tile_walk tile(p.tiles); tile.valid(); tile.next()) {
    const coord mine = {.d = tile.place().head, .r = tile.place().m * kWarps + warpid()};
    lscf_rows rows;
    load(rows.q, p.q, mine);  // past the last row: zeros
    neg_infty(rows.top);
    zero(rows.sum);
    zero(rows.o);
    for (int step = 0; step < steps; ++step, at.advance()) {
      s.stages.wait_full(at);
      compute(rows, s.k[at.stage], s.v[at.stage]);
      s.stages.release_after_loads(at);
    }
    finish(rows, s.o[warpid()]);
    if (laneid() == 0) {
      tma::store_async(p.o, s.o[warpid()], mine);  // past the last row: nothing
      tma::store_commit_group();
    }
  }
  if (laneid() == 0) tma::store_async_read_wait<0>();
}

void load_store_compute_finish(const attention_tensors& x, cudaStream_t stream) {
  const auto view = [&](const void* data) {
    return gl<bf16>{(bf16*)data, 1, x.heads, x.length, 64, 0, int64_t{x.length} * 64, 64};
  };
  lscf_params p = {.q = view(x.q), .tiles = {(x.length + 255) / 256, x.heads}};
  p.k = tma_map<kv_tile>::of(view(x.k));
  p.v = tma_map<kv_tile>::of(view(x.v));
  p.o = tma_map<o_tile>::of(view(x.o));
  host::launch(lscf, {{host::multiprocessors()}, {kThreads}, sizeof(lscf_shared)}, stream, p);
}
