// c = a bᵀ in bf16, for a [m, k], b [n, k] and c [m, n]. Two blocks are a cluster, with 128 rows of
// c each and the same 256 columns: each asks for half of b's tile, which TMA puts into both.
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include "kernels.h"

using namespace kittens;

constexpr int kConsumers = 2, kBlocks = 2, kStages = 4, kThreads = 128 * (kConsumers + 1);

struct gemm_params {
  tma_map<st_bf<64, 64>> a;   // of a consumer
  tma_map<st_bf<128, 64>> b;  // what a block asks for
  tma_map<st_bf<64, 128>> c;  // half of a consumer's
  tile_scheduler tiles;       // of a cluster: 256 × 256
  int steps;                  // of 64, along k
};

struct gemm_shared {
  st_bf<64, 64> a[kStages][kConsumers];
  st_bf<128, 64> b[kStages][kBlocks];  // one below the other, as the rows of st_bf<256, 64>
  st_bf<64, 128> c[kConsumers];
  ring<kStages> stages;
};

__global__ void __launch_bounds__(kThreads, 1) gemm_kernel(const __grid_constant__ gemm_params p) {
  auto& s = *reinterpret_cast<gemm_shared*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.stages.init(kConsumers * kBlocks);
  cluster::sync();
  const int w = warpgroupid() - 1, lane = warpgroup::laneid(), rank = cluster::rank();
  cursor<kStages> at, before;
  const auto for_each_tile = [&](auto f) {
    for (int i = arch::block_x() / kBlocks; i < p.tiles.count(); i += arch::grid_x() / kBlocks) {
      const auto [m, n, batch] = p.tiles.place(i);
      f((m * kBlocks + rank) * kConsumers, n);  // the block's first row of tiles of a and c
    }
  };
  if (w < 0) {
    warpgroup::lower_registers<40>();
    for_each_tile([&](int row, int n) {
      for (int k = 0; lane == 0 && k < p.steps; ++k, at.advance()) {
        semaphore& full = s.stages.full[at.stage];
        s.stages.wait_empty(at);  // in both blocks
        s.stages.expect(at, sizeof(s.a[0]) + sizeof(s.b[0]));
        tma::load_async(s.a[at.stage][0], p.a, full, {.r = row, .c = k});
        tma::load_async(s.a[at.stage][1], p.a, full, {.r = row + 1, .c = k});
        tma::load_async_multicast(s.b[at.stage][rank], p.b, full, {.r = n * 2 + rank, .c = k}, 3);
      }
    });
  } else {
    warpgroup::raise_registers<232>();
    for_each_tile([&](int row, int n) {
      rt_fl<16, 256> sum;
      rt_fl<16, 128> half;
      zero(sum);
      for (int k = 0; k < p.steps; ++k, at.advance()) {
        s.stages.wait_full(at);
        warpgroup::mma_fence();
        warpgroup::mma_ABt(sum, s.a[at.stage][w], reinterpret_cast<st_bf<256, 64>&>(s.b[at.stage]));
        warpgroup::mma_commit_group();
        warpgroup::mma_async_wait<1>();  // the step before has been read: tell both blocks
        if (k > 0 && lane < kBlocks) s.stages.release_remote_after_mma(before, lane);
        before = at;
      }
      warpgroup::mma_async_wait<0>();
      if (lane < kBlocks) s.stages.release_remote_after_mma(before, lane);
      for (int part = 0; part < 2; ++part) {
        std::memcpy(&half, &sum.data[0][64 * part], sizeof(half));
        if (lane == 0) tma::store_async_read_wait<0>();  // the half before has left
        warpgroup::sync(1 + w);
        warpgroup::store(s.c[w], half);
        warpgroup::sync(1 + w);
        if (lane != 0) continue;
        tma::store_async(p.c, s.c[w], {.r = row + w, .c = n * 2 + part});
        tma::store_commit_group();
      }
    });
    if (lane == 0) tma::store_async_read_wait<0>();
  }
  arch::sync_warp();
  cluster::sync();  // until then the other block may write here
}

void gemm(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
  const auto set = []<class Tile>(tma_map<Tile>& map, const void* x, int rows, int cols) {
    map = tma_map<Tile>::of(gl<bf16>::matrix((bf16*)x, rows, cols, cols));
  };
  gemm_params p{.steps = (k + 63) / 64};
  set(p.a, a, m, k);
  set(p.b, b, n, k);
  set(p.c, c, m, n);
  // Clusters that run at one time do eight columns of tiles and about as many rows: what they read
  // of a and b is little, and is in the L2 cache.
  p.tiles = {(m + 255) / 256, (n + 255) / 256, 1, false, n > 2048 ? 8 : (n + 255) / 256};
  host::launch(gemm_kernel,
               {{host::multiprocessors() / 2 * 2}, {kThreads}, sizeof(gemm_shared), kBlocks},
               stream, p);
}
