// arch/barrier.cuh, arch/cluster.cuh, arch/grid.cuh, arch/mbarrier.cuh and arch/fence.cuh: who
// waits for whom, as what is read then shows; and phases, as tests of them tell.
#include "kittens/arch/arch.cuh"
#include "record.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

KITTENS_DEVICE volatile int* shared_words() {
  return reinterpret_cast<volatile int*>(arch::dynamic_shared());
}

// ---- of a block, of a warp, of some warps

// Each round, every thread reads what its neighbour wrote in the round before.
__global__ void rotates(int* out) {
  volatile int* word = shared_words();
  const int i = arch::thread_id(), n = arch::block_threads(), lane = arch::lane_id();
  word[i] = i;
  for (int round = 0; round < 5; ++round) {
    arch::sync_block();
    const int v = word[(i + 1) % n];
    arch::sync_block();
    word[i] = v;
  }
  arch::sync_warp();
  const int v = word[i - lane + (lane + 1) % 32];
  arch::sync_warp();
  word[i] = v;
  arch::sync_warp(lane < 16 ? 0x0000ffffu : 0xffff0000u);  // two halves, each for itself
  out[i] = word[i ^ 1];
}

TEST(blocks_and_warps) {
  for (const int threads : {32, 96, 1024}) {
    const buffer<int> out(threads);
    run(rotates, {.grid = {1}, .block = {threads}, .shared_bytes = 4 * threads}, out.data());
    record("sync_block_and_warp.threads_" + to_text(threads), out.get());
  }
}

// Warp 0 produces, the others consume; a ring of two slots, with two barriers each.
__global__ void ping_pong(int* out, int first_barrier) {
  const int full = first_barrier, empty = first_barrier + 2, threads = arch::block_threads();
  constexpr int kRounds = 9;
  volatile int* word = shared_words();
  const int lane = arch::lane_id();
  int sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round % 2;
    if (arch::warp_id() == 0) {
      if (round >= 2) arch::named_barrier_sync(empty + slot, threads);
      word[slot * 32 + lane] = round * 100 + lane;
      arch::named_barrier_arrive(full + slot, threads);
    } else {
      arch::named_barrier_sync(full + slot, threads);
      sum += word[slot * 32 + 31 - lane];
      if (round + 2 < kRounds) arch::named_barrier_arrive(empty + slot, threads);
    }
  }
  out[arch::thread_id()] = sum;
}

TEST(named_barriers) {
  for (const int threads : {64, 96, 512}) {
    for (const int first : {1, 12}) {
      const buffer<int> out(threads);
      run(ping_pong, {.grid = {1}, .block = {threads}, .shared_bytes = 256}, out.data(), first);
      record("named_barrier.threads_" + to_text(threads) + ".from_" + to_text(first), out.get());
    }
  }
}

// ---- of a cluster

// Each block gives its neighbour a number, through global memory.
__global__ void passes_on(int* slots, int* out) {
  const int n = arch::cluster_blocks(), rank = arch::cluster_rank();
  int* mine = slots + (arch::block_x() - rank) * arch::block_threads();  // of this cluster
  int value = 1000 * arch::block_x() + arch::thread_id();
  for (int round = 0; round < 3; ++round) {
    mine[rank * arch::block_threads() + arch::thread_id()] = value;
    arch::cluster_sync();
    value = mine[(rank + 1) % n * arch::block_threads() + arch::thread_id()] + 1;
    arch::cluster_arrive();
    arch::cluster_wait();
  }
  out[arch::block_x() * arch::block_threads() + arch::thread_id()] = value;
}

TEST(cluster_barrier) {
  constexpr int kBlocks = 8, kThreads = 64;
  for (const int cluster : {1, 2, 4, 8}) {
    const buffer<int> slots(kBlocks * kThreads), out(kBlocks * kThreads);
    run(passes_on, {.grid = {kBlocks}, .block = {kThreads}, .cluster = cluster}, slots.data(),
        out.data());
    record("cluster_barrier.blocks_" + to_text(cluster), out.get());
  }
}

// ---- of one grid after the other

// Each launch reads what other blocks of the launch before wrote.
__global__ void hands_on(const int* from, int* to) {
  arch::wait_prerequisites();
  arch::launch_dependents();
  const int i = arch::block_x() * arch::block_threads() + arch::thread_id();
  to[i] = 3 * from[(i + 7 * arch::block_threads()) % (arch::grid_x() * arch::block_threads())] + 1;
}

TEST(grids) {
  constexpr int kBlocks = 1000, kThreads = 64, kLaunches = 12;
  std::vector<int> first(kBlocks * kThreads);
  for (int i = 0; i < kBlocks * kThreads; ++i) first[i] = i % 1009;
  const buffer<int> a(first), b(kBlocks * kThreads);
  for (int launch = 0; launch < kLaunches; ++launch) {
    const bool even = launch % 2 == 0;
    host::launch_programmatic(hands_on, {.grid = {kBlocks}, .block = {kThreads}}, nullptr,
                              even ? a.data() : b.data(), even ? b.data() : a.data());
  }
  record("grids.programmatic", every(37, a.get()));
}

// ---- mbarriers

KITTENS_DEVICE arch::mbarrier* barriers() {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
}

// What tests of both parities say after each step, by one thread.
__global__ void phases(int* out) {
  arch::mbarrier* b = barriers();
  const auto note = [&] {
    *out++ = arch::mbarrier_test(b, 0) ? 1 : 0;
    *out++ = arch::mbarrier_test(b, 1) ? 1 : 0;
  };
  arch::mbarrier_init(b, 5);
  note();
  arch::mbarrier_arrive(b, 4);
  note();
  arch::mbarrier_arrive(b);
  note();
  arch::mbarrier_arrive(b, 5);
  note();
  arch::mbarrier_invalidate(b);
  arch::mbarrier_init(b, 1);
  note();
  arch::mbarrier_arrive(b);
  note();
}

TEST(phases) {
  static_assert(arch::kHasMbarriers);
  const buffer<int> out(12);
  run(phases, {.grid = {1}, .block = {1}, .shared_bytes = 16}, out.data());
  record("mbarrier.phases", out.get());
}

// Bytes hold a phase open. A plain copy brings 64 of them at a time; a look at the barrier comes
// after each that the thread knows to have come, by a second barrier.
__global__ void bytes_and_phases(const uint4* in, int* out) {
  arch::mbarrier* b = barriers();
  arch::mbarrier* copied = b + 1;
  uint8_t* here = arch::dynamic_shared() + 128;
  arch::mbarrier_init(b, 2);
  arch::mbarrier_init(copied, 1);
  arch::fence_mbarrier_init();
  const auto note = [&] { *out++ = arch::mbarrier_test(b, 0) ? 1 : 0; };
  arch::mbarrier_expect_bytes(b, 64);
  note();
  arch::mbarrier_arrive(b);
  note();
  arch::mbarrier_arrive_expect_bytes(b, 128);
  note();  // both arrivals have come, no byte has
  arch::mbarrier_arrive_expect_bytes(copied, 64);
  arch::bulk_load(here, in, 64, copied);
  arch::mbarrier_wait(copied, 0);
  note();  // the bytes of another barrier do not count
  arch::bulk_load(here, in, 64, b);
  arch::bulk_load(here + 64, in + 4, 128, b);
  arch::mbarrier_wait(b, 0);
  note();
  for (int i = 0; i < 48; ++i) out[i] = reinterpret_cast<volatile int*>(here)[i];
}

TEST(bytes_and_phases) {
  std::vector<uint32_t> values;
  for (unsigned i = 0; i < 48; ++i) values.push_back(i * i + 7);
  const buffer<uint32_t> in(values);
  const buffer<int> out(5 + 48);
  run(bytes_and_phases, {.grid = {1}, .block = {1}, .shared_bytes = 1024},
      reinterpret_cast<const uint4*>(in.data()), out.data());
  record("mbarrier.bytes", out.get());
}

// A slot goes round: what was written before the arrivals is seen behind the wait.
__global__ void passes_values(int* out) {
  const int i = arch::thread_id(), n = arch::block_threads();
  arch::mbarrier* full = barriers();
  arch::mbarrier* empty = full + 1;
  int* slot = reinterpret_cast<int*>(arch::dynamic_shared() + 16);
  if (i == 0) {
    arch::mbarrier_init(full, n);
    arch::mbarrier_init(empty, n);
    arch::fence_mbarrier_init();
  }
  arch::sync_block();
  int sum = 0;
  for (int round = 0; round < 5; ++round) {
    const uint32_t parity = round & 1;
    arch::mbarrier_wait(empty, parity ^ 1);  // at first, the slot is empty
    slot[i] = round * 1000 + i;
    arch::mbarrier_arrive(full);
    arch::mbarrier_wait(full, parity);
    sum += slot[(i + 33) % n];
    arch::mbarrier_arrive(empty);
  }
  out[i] = sum;
}

TEST(slots) {
  constexpr int kThreads = 128;
  const buffer<int> out(kThreads);
  run(passes_values, {.grid = {1}, .block = {kThreads}, .shared_bytes = 16 + 4 * kThreads},
      out.data());
  record("mbarrier.slots", out.get());
}

// Arrivals at the barrier of another block, one and more at a time; tests before and after.
__global__ void arrives_far(int* out) {
  arch::mbarrier* b = barriers();
  const int blocks = arch::cluster_blocks(), rank = arch::cluster_rank(), last = blocks - 1;
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(b, 3 * blocks);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  int* mine = out + 3 * arch::block_x();
  if (arch::thread_id() == 5) mine[0] = arch::mbarrier_test(b, 0) ? 1 : 0;
  arch::cluster_sync();
  if (arch::thread_id() == 5) {
    arch::mbarrier_arrive_remote(b, last, 2);
    arch::mbarrier_arrive_remote(b, last);
    if (rank == last) arch::mbarrier_wait(b, 0);
  }
  arch::cluster_sync();
  if (arch::thread_id() == 5) {
    mine[1] = arch::mbarrier_test(b, 0) ? 1 : 0;
    mine[2] = arch::mbarrier_test(b, 1) ? 1 : 0;
  }
  arch::cluster_sync();
}

TEST(remote_arrivals) {
  for (const int cluster : {2, 4, 8}) {
    const buffer<int> out(3 * 8);
    run(arrives_far, {.grid = {8}, .block = {32}, .shared_bytes = 16, .cluster = cluster},
        out.data());
    record("mbarrier.remote.blocks_" + to_text(cluster), out.get());
  }
}

// ---- fences between the ways to memory

// A number goes from ordinary stores through the copy engine, to shared and to global memory and
// back to ordinary loads.
__global__ void changes_ways(uint4* memory, uint4* out) {
  auto* full = barriers();
  auto* here = reinterpret_cast<uint4*>(arch::dynamic_shared() + 128);
  const int i = arch::thread_id();
  if (i == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
  }
  memory[i] = {unsigned(i), unsigned(i) + 1, 7, unsigned(i) * 3};
  arch::fence_async_proxy_global();
  arch::sync_block();
  if (i == 0) {
    arch::mbarrier_arrive_expect_bytes(full, 512);
    arch::bulk_load(here, memory, 512, full);
  }
  arch::mbarrier_wait(full, 0);
  here[i].z += here[(i + 1) % 32].x;
  arch::fence_async_proxy();
  arch::sync_block();
  if (i != 0) return;
  arch::bulk_store(out, here, 512);
  arch::bulk_commit();
  arch::bulk_wait<0>();
}

TEST(ways_to_memory) {
  const buffer<uint32_t> memory(4 * 32), out(4 * 32);
  run(changes_ways, {.grid = {1}, .block = {32}, .shared_bytes = 128 + 512},
      reinterpret_cast<uint4*>(memory.data()), reinterpret_cast<uint4*>(out.data()));
  record("fence_async_proxy", out.get());
}

}  // namespace
