// ops/semaphore.cuh: phases, arrivals and bytes.
#include <kittens.cuh>

#include "harness.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

struct shared {
  semaphore full, empty;
  int word[64];
};
KITTENS_DEVICE shared& block_shared() { return *reinterpret_cast<shared*>(arch::dynamic_shared()); }

// Warps 0 and 1 write, each thread a word, warp 2 adds up; one slot, many rounds.
__global__ void hand_over(int* sums, int rounds) {
  shared& s = block_shared();
  const int i = arch::thread_id();
  if (i == 0) {
    init_semaphore(s.full, 64);
    init_semaphore(s.empty, 1);
  }
  arch::sync_block();
  uint32_t phase = 0;
  for (int r = 0; r < rounds; ++r, phase ^= 1) {
    if (warpid() < 2) {
      wait(s.empty, phase ^ 1);  // passes at once in the first round
      s.word[i] = 100 * r + i;
      arrive(s.full);
    } else {
      wait(s.full, phase);
      int sum = 0;
      for (int j = laneid(); j < 64; j += 32) sum += s.word[j];
      sums[r * 32 + laneid()] = sum;
      arch::sync_warp();
      if (laneid() == 0) arrive(s.empty);
    }
  }
}

TEST(a_slot_is_handed_over_again_and_again) {
  constexpr int kRounds = 9;
  buffer<int> sums(kRounds * 32);
  run(hand_over, {.grid = {1}, .block = {96}, .shared_bytes = sizeof(shared)}, sums.data(),
      kRounds);
  const std::vector<int> got = sums.get();
  for (int i = 0; i < kRounds * 32; ++i) CHECK_EQUAL(got[i], i / 32 * 200 + 2 * (i % 32) + 32);
}

__global__ void counts(int* seen) {
  shared& s = block_shared();
  if (arch::thread_id() != 0) return;
  init_semaphore(s.full, 3);
  int n = 0;
  seen[n++] = test(s.full, 1);  // before the first phase
  seen[n++] = test(s.full, 0);
  arrive(s.full, 2);
  seen[n++] = test(s.full, 0);
  arrive(s.full);
  seen[n++] = test(s.full, 0);  // over, and the second one has begun
  seen[n++] = test(s.full, 1);
  arrive(s.full, 3);
  seen[n++] = test(s.full, 1);
  invalidate(s.full);
  init_semaphore(s.full, 1);  // as new
  seen[n++] = test(s.full, 0);
  arrive(s.full);
  seen[n++] = test(s.full, 0);
}

TEST(a_phase_ends_with_its_last_arrival) {
  buffer<int> seen(8);
  run(counts, {.grid = {1}, .block = {32}, .shared_bytes = sizeof(shared)}, seen.data());
  const std::vector<int> got = seen.get(), want = {1, 0, 0, 1, 0, 1, 0, 1};
  for (size_t i = 0; i < want.size(); ++i) CHECK_EQUAL(got[i], want[i]);
}

// A phase that expects bytes lasts until they have come, though its one arrival has.
__global__ void __launch_bounds__(32) bytes(const float* in, float* out) {
  struct shared {
    alignas(128) float values[256];
    semaphore full;
  };
  auto& s = *reinterpret_cast<shared*>(arch::dynamic_shared());
  if (laneid() == 0) {
    init_semaphore(s.full, 1);
    expect_bytes(s.full, sizeof(s.values));
    arch::bulk_load(&s.values[0], in, 512, &s.full.barrier);
    arch::bulk_load(&s.values[128], in + 128, 512, &s.full.barrier);
  }
  arch::sync_warp();
  wait(s.full, 0);
  for (int i = laneid(); i < 256; i += 32) out[i] = s.values[i];
}

TEST(a_phase_waits_for_its_bytes) {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>(i));
  const buffer<float> in(values), out(size_t{256});
  run(bytes, {.grid = {1}, .block = {32}, .shared_bytes = 2048}, in.data(), out.data());
  CHECK(out.get() == values);
}

// The first block of a cluster arrives at the semaphore of each.
__global__ void greets(int* out) {
  shared& s = block_shared();
  const int blocks = arch::cluster_blocks();
  if (arch::thread_id() == 0) init_semaphore(s.full, 2);
  arch::cluster_sync();
  if (arch::cluster_rank() == 0 && arch::thread_id() < blocks) {
    arrive_remote(s.full, arch::thread_id(), 2);
  }
  wait(s.full, 0);
  out[arch::block_x() * 32 + arch::thread_id()] = test(s.full, 0);
  arch::cluster_sync();
}

TEST(blocks_of_a_cluster_arrive_at_each_other) {
  buffer<int> out(4 * 32);
  run(greets, {.grid = {4}, .block = {32}, .shared_bytes = sizeof(shared), .cluster = 2},
      out.data());
  for (const int seen : out.get()) CHECK_EQUAL(seen, 1);
}

}  // namespace
