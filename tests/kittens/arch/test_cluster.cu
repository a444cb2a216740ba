// arch/cluster.cuh, and what goes from block to block of a cluster: arrivals and multicast copies.
#include "harness.h"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/cluster.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/arch/tma.cuh"
#include "kittens/host/tensor_map.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

__global__ void ranks(int* out) {
  if (arch::thread_id() != 0) return;
  const int block =
      (arch::block_z() * arch::grid_y() + arch::block_y()) * arch::grid_x() + arch::block_x();
  out[2 * block] = arch::cluster_rank();
  out[2 * block + 1] = arch::cluster_blocks();
}

TEST(blocks_know_their_rank) {
  for (const int blocks : {1, 2, 4, 8}) {
    constexpr int kX = 16, kY = 2, kZ = 3;
    const buffer<int> out(2 * kX * kY * kZ);
    run(ranks, {.grid = {kX, kY, kZ}, .block = {32}, .cluster = blocks}, out.data());
    const std::vector<int> got = out.get();
    for (int i = 0; i < kX * kY * kZ; ++i) {
      CHECK_EQUAL(got[2 * i], i % kX % blocks);
      CHECK_EQUAL(got[2 * i + 1], blocks);
    }
  }
}

// Each block gives its neighbour a number, through global memory.
__global__ void passes_on(int* slots, int* out, int rounds) {
  const int n = arch::cluster_blocks(), rank = arch::cluster_rank();
  int* mine = slots + (arch::block_x() - rank) * arch::block_threads();  // of this cluster
  int value = 1000 * arch::block_x() + arch::thread_id();
  for (int round = 0; round < rounds; ++round) {
    mine[rank * arch::block_threads() + arch::thread_id()] = value;
    arch::cluster_sync();
    value = mine[(rank + 1) % n * arch::block_threads() + arch::thread_id()] + 1;
    arch::cluster_arrive();
    arch::cluster_wait();
  }
  out[arch::block_x() * arch::block_threads() + arch::thread_id()] = value;
}

TEST(cluster_barrier_orders_writes) {
  constexpr int kBlocks = 8, kThreads = 64, kRounds = 3;
  for (const int cluster : {2, 4}) {
    const buffer<int> slots(kBlocks * kThreads), out(kBlocks * kThreads);
    run(passes_on, {.grid = {kBlocks}, .block = {kThreads}, .cluster = cluster}, slots.data(),
        out.data(), kRounds);
    const std::vector<int> got = out.get();
    for (int i = 0; i < kBlocks * kThreads; ++i) {
      const int block = i / kThreads, first = block / cluster * cluster;
      const int from = first + (block - first + kRounds) % cluster;
      CHECK_EQUAL(got[i], 1000 * from + i % kThreads + kRounds);
    }
  }
}

// Who has exited is not waited for.
__global__ void some_exit(int* out) {
  if (arch::cluster_rank() == 1 && arch::warp_id() == 1) return;
  arch::cluster_sync();
  out[arch::block_x() * arch::block_threads() + arch::thread_id()] = 1;
}

TEST(exited_threads_are_not_waited_for) {
  const buffer<int> out(std::vector<int>(4 * 64, 0));
  run(some_exit, {.grid = {4}, .block = {64}, .cluster = 2}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < 4 * 64; ++i) CHECK_EQUAL(got[i], i / 64 % 2 == 1 && i % 64 >= 32 ? 0 : 1);
}

struct stage {
  alignas(1024) uint16_t tile[64 * 64];
  arch::mbarrier full, empty;
};

// Each block of the cluster loads its share of the rows of each tile, and all blocks get all of
// them. A tile's slot is loaded again when both blocks have read it.
template <int Blocks>
__global__ void shares_tiles(const __grid_constant__ arch::tensor_map map, unsigned* out,
                             int tiles) {
  auto& s = *reinterpret_cast<stage*>(arch::dynamic_shared());
  const int i = arch::thread_id(), rank = arch::cluster_rank();
  constexpr int kRows = 64 / Blocks;
  if (i == 0) {
    arch::mbarrier_init(&s.full, 1);
    arch::mbarrier_init(&s.empty, Blocks);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  unsigned sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t parity = tile & 1;
    if (i == 0) {
      arch::mbarrier_wait(&s.empty, parity ^ 1);
      arch::mbarrier_arrive_expect_bytes(&s.full, sizeof s.tile);
      arch::tma_load_multicast(s.tile + rank * kRows * 64, &map, &s.full, (1 << Blocks) - 1, 0,
                               tile * 64 + rank * kRows);
    }
    arch::mbarrier_wait(&s.full, parity);
    for (int k = i; k < 64 * 64; k += arch::block_threads()) sum += s.tile[k] * (k + 1);
    arch::fence_async_proxy();
    arch::sync_block();
    if (i < Blocks) arch::mbarrier_arrive_remote(&s.empty, i);
  }
  out[arch::block_x() * arch::block_threads() + i] = sum;
  arch::cluster_sync();
}

template <int Blocks>
void check_shared_tiles() {
  constexpr int kTiles = 5, kThreads = 128;
  std::vector<uint16_t> values(kTiles * 64 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7 + i / 100);
  const buffer<uint16_t> in(values);
  const buffer<unsigned> out(2 * Blocks * kThreads);
  const arch::tensor_map map = host::encode_tensor_map({.data = in.data(),
                                                        .kind = host::dtype::float16,
                                                        .rank = 2,
                                                        .extent = {64, kTiles * 64},
                                                        .stride_bytes = {128},
                                                        .box = {64, 64 / Blocks}});
  run(shares_tiles<Blocks>,
      {.grid = {2 * Blocks}, .block = {kThreads}, .shared_bytes = sizeof(stage), .cluster = Blocks},
      map, out.data(), kTiles);
  const std::vector<unsigned> got = out.get();
  for (int i = 0; i < 2 * Blocks * kThreads; ++i) {
    unsigned want = 0;
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int k = i % kThreads; k < 64 * 64; k += kThreads)
        want += values[tile * 4096 + k] * (k + 1);
    }
    CHECK_EQUAL(got[i], want);
  }
}

TEST(tiles_are_shared_by_multicast) {
  check_shared_tiles<2>();
  check_shared_tiles<4>();
}

// To some blocks only, by one of them.
__global__ void loads_for_some(const __grid_constant__ arch::tensor_map map, uint16_t* out,
                               uint16_t blocks) {
  auto& s = *reinterpret_cast<stage*>(arch::dynamic_shared());
  const int i = arch::thread_id(), rank = arch::cluster_rank();
  for (int k = i; k < 64; k += arch::block_threads()) s.tile[k] = 7;
  if (i == 0) {
    arch::mbarrier_init(&s.full, 1);
    arch::fence_mbarrier_init();
  }
  arch::fence_async_proxy();
  arch::cluster_sync();
  const bool gets = (blocks >> rank & 1) != 0;
  if (i == 0 && gets) arch::mbarrier_arrive_expect_bytes(&s.full, 128);
  if (i == 0 && rank == 1) arch::tma_load_multicast(s.tile, &map, &s.full, blocks, 0);
  if (gets) arch::mbarrier_wait(&s.full, 0);
  for (int k = i; k < 64; k += arch::block_threads()) out[arch::block_x() * 64 + k] = s.tile[k];
  arch::cluster_sync();
}

TEST(multicast_to_some_blocks) {
  std::vector<uint16_t> values(64);
  for (int i = 0; i < 64; ++i) values[i] = static_cast<uint16_t>(100 + i);
  const buffer<uint16_t> in(values);
  const arch::tensor_map map = host::encode_tensor_map(
      {.data = in.data(), .kind = host::dtype::float16, .rank = 1, .extent = {64}, .box = {64}});
  for (const int blocks : {0b0010, 0b1101, 0b1000, 0b1111}) {
    const buffer<uint16_t> out(4 * 64);
    run(loads_for_some, {.grid = {4}, .block = {64}, .shared_bytes = sizeof(stage), .cluster = 4},
        map, out.data(), static_cast<uint16_t>(blocks));
    const std::vector<uint16_t> got = out.get();
    for (int i = 0; i < 4 * 64; ++i) {
      CHECK_EQUAL(got[i], (blocks >> i / 64 & 1) != 0 ? 100 + i % 64 : 7);
    }
  }
}

// More arrivals than one at a time, at a barrier of another block.
__global__ void arrives_far(int* out) {
  auto* b = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  const int last = arch::cluster_blocks() - 1;
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(b, 3 * arch::cluster_blocks());
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  if (arch::thread_id() == 5) {
    arch::mbarrier_arrive_remote(b, last, 2);
    arch::mbarrier_arrive_remote(b, last);
  }
  if (arch::cluster_rank() == last) {
    arch::mbarrier_wait(b, 0);
    out[arch::thread_id()] = 1;
  }
  arch::cluster_sync();
}

TEST(remote_arrivals_count) {
  const buffer<int> out(32);
  run(arrives_far, {.grid = {4}, .block = {32}, .shared_bytes = 16, .cluster = 4}, out.data());
  for (const int v : out.get()) CHECK_EQUAL(v, 1);
}

}  // namespace
