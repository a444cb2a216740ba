// arch/barrier.cuh: who waits for whom, seen through shared memory.
#include "harness.h"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/shared.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

KITTENS_DEVICE volatile int* shared_words() {
  return reinterpret_cast<volatile int*>(arch::dynamic_shared());
}

// Each round, every thread reads what its neighbour wrote in the round before.
__global__ void rotates(int* out, int rounds) {
  volatile int* word = shared_words();
  const int i = arch::thread_id(), n = arch::block_threads();
  word[i] = i;
  for (int r = 0; r < rounds; ++r) {
    arch::sync_block();
    const int v = word[(i + 1) % n];
    arch::sync_block();
    word[i] = v;
  }
  out[arch::block_x() * n + i] = word[i];
}

TEST(sync_block_orders_a_block) {
  for (const int threads : {1, 31, 32, 48, 256, 1024}) {
    constexpr int kBlocks = 3, kRounds = 5;
    buffer<int> out(kBlocks * threads);
    run(rotates, {.grid = {kBlocks}, .block = {threads}, .shared_bytes = threads * 4}, out.data(),
        kRounds);
    const std::vector<int> got = out.get();
    for (int i = 0; i < kBlocks * threads; ++i)
      CHECK_EQUAL(got[i], (i % threads + kRounds) % threads);
  }
}

__global__ void rotates_in_warp(int* out) {
  volatile int* word = shared_words();
  const int i = arch::thread_id(), warp_start = i - arch::lane_id();
  word[i] = i;
  arch::sync_warp();
  const int v = word[warp_start + (arch::lane_id() + 1) % 32];
  arch::sync_warp();
  word[i] = v;
  // Two halves, each for itself.
  const unsigned half = arch::lane_id() < 16 ? 0x0000ffffu : 0xffff0000u;
  arch::sync_warp(half);
  out[i] = word[warp_start + (arch::lane_id() ^ 1)];
}

TEST(sync_warp_orders_a_warp_and_its_halves) {
  buffer<int> out(64);
  run(rotates_in_warp, {.grid = {1}, .block = {64}, .shared_bytes = 256}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < 64; ++i) CHECK_EQUAL(got[i], i / 32 * 32 + ((i % 32 ^ 1) + 1) % 32);
}

// Warp 0 produces, warps 1 and 2 consume; a ring of two slots, with two barriers each.
__global__ void ping_pong(int* out, int rounds) {
  constexpr int kFull = 1, kEmpty = 3, kThreads = 96;
  volatile int* word = shared_words();
  const int lane = arch::lane_id();
  if (arch::warp_id() == 0) {
    for (int r = 0; r < rounds; ++r) {
      const int slot = r % 2;
      if (r >= 2) arch::named_barrier_sync(kEmpty + slot, kThreads);
      word[slot * 32 + lane] = r * 100 + lane;
      arch::named_barrier_arrive(kFull + slot, kThreads);
    }
  } else {
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
      const int slot = r % 2;
      arch::named_barrier_sync(kFull + slot, kThreads);
      sum += word[slot * 32 + 31 - lane];
      if (r + 2 < rounds) arch::named_barrier_arrive(kEmpty + slot, kThreads);
    }
    out[arch::thread_id() - 32] = sum;
  }
}

TEST(named_barriers_make_a_pipeline) {
  constexpr int kRounds = 9;
  buffer<int> out(64);
  run(ping_pong, {.grid = {1}, .block = {96}, .shared_bytes = 256}, out.data(), kRounds);
  const std::vector<int> got = out.get();
  for (int i = 0; i < 64; ++i) {
    CHECK_EQUAL(got[i], kRounds * (kRounds - 1) / 2 * 100 + kRounds * (31 - i % 32));
  }
}

}  // namespace
