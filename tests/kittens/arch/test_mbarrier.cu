// arch/mbarrier.cuh: phases, arrivals, bytes; and elect_one of arch/thread.cuh.
#include "harness.h"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/arch/math.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/shuffle.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

KITTENS_DEVICE arch::mbarrier* barriers() {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
}

// What a barrier is for: the other threads see what was written before the arrivals.
__global__ void passes_values(int* out, int rounds) {
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
  for (int round = 0; round < rounds; ++round) {
    const uint32_t parity = round & 1;
    arch::mbarrier_wait(empty, parity ^ 1);  // at first, all slots are empty
    slot[i] = round * 1000 + i;
    arch::mbarrier_arrive(full);
    arch::mbarrier_wait(full, parity);
    sum += slot[(i + 33) % n];
    arch::mbarrier_arrive(empty);
  }
  out[i] = sum;
}

TEST(a_slot_goes_round) {
  constexpr int kThreads = 128, kRounds = 5;
  const buffer<int> out(kThreads);
  run(passes_values, {.grid = {1}, .block = {kThreads}, .shared_bytes = 16 + 4 * kThreads},
      out.data(), kRounds);
  const std::vector<int> got = out.get();
  for (int i = 0; i < kThreads; ++i) {
    CHECK_EQUAL(got[i], 1000 * (0 + 1 + 2 + 3 + 4) + kRounds * ((i + 33) % kThreads));
  }
}

// One thread, so that the order of events is the same everywhere.
__global__ void counts(int* out) {
  arch::mbarrier* b = barriers();
  int n = 0;
  const auto note = [&](uint32_t parity) { out[n++] = arch::mbarrier_test(b, parity) ? 1 : 0; };
  arch::mbarrier_init(b, 5);
  note(1);  // before phase 0: over
  note(0);  // phase 0: no
  arch::mbarrier_arrive(b, 4);
  note(0);
  arch::mbarrier_arrive(b);
  note(0);  // now it is
  note(1);  // phase 1: no
  arch::mbarrier_arrive(b, 5);
  note(1);
  arch::mbarrier_invalidate(b);
  arch::mbarrier_init(b, 1);
  note(0);
  arch::mbarrier_arrive(b);
  note(0);
}

TEST(phases_count_arrivals) {
  const buffer<int> out(8);
  run(counts, {.grid = {1}, .block = {1}, .shared_bytes = 16}, out.data());
  const int want[] = {1, 0, 0, 1, 0, 1, 0, 1};
  const std::vector<int> got = out.get();
  for (int i = 0; i < 8; ++i) CHECK_EQUAL(got[i], want[i]);
}

// A warp that waits while another arrives.
__global__ void waits_for_a_warp(int* out) {
  arch::mbarrier* b = barriers();
  int* value = reinterpret_cast<int*>(b + 1);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(b, 1);
    arch::fence_mbarrier_init();
  }
  arch::sync_block();
  if (arch::warp_id() == 1) {
    if (arch::elect_one()) {
      *value = 42;
      arch::mbarrier_arrive(b);
    }
  } else {
    while (!arch::mbarrier_test(b, 0)) {
    }
    out[arch::lane_id()] = *value;
  }
}

TEST(testing_in_a_loop_lets_others_run) {
  const buffer<int> out(32);
  run(waits_for_a_warp, {.grid = {1}, .block = {64}, .shared_bytes = 16}, out.data());
  for (const int v : out.get()) CHECK_EQUAL(v, 42);
}

__global__ void elects(int* out) {
  const bool first = arch::elect_one(), second = arch::elect_one();
  const unsigned votes = arch::ballot(first);
  out[arch::thread_id()] = arch::popc(votes) == 1 && first == second ? 1 : 0;
}

TEST(one_lane_of_each_warp_is_elected_always_the_same) {
  const buffer<int> out(96);
  run(elects, {.grid = {1}, .block = {96}}, out.data());
  for (const int v : out.get()) CHECK_EQUAL(v, 1);
}

__global__ void fences(int* out) {
  out[arch::thread_id()] = arch::thread_id();
  arch::fence_async_proxy();
  arch::fence_async_proxy_global();
}

TEST(fences_go_anywhere) {
  const buffer<int> out(32);
  run(fences, {.grid = {1}, .block = {32}}, out.data());
  CHECK_EQUAL(out.get()[31], 31);
}

}  // namespace
