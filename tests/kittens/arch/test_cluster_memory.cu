// arch/cluster_memory.cuh: the shared memory of a cluster's other blocks.
#include "harness.h"
#include "kittens/arch/atomic.cuh"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/cluster.cuh"
#include "kittens/arch/cluster_memory.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kThreads = 64;

// Vectors of each size, by their 32-bit (or smaller) words.
template <class V>
KITTENS_DEVICE V make(int value) {
  V v;
  auto* bytes = reinterpret_cast<uint8_t*>(&v);
  for (int i = 0; i < int(sizeof(V)); ++i) bytes[i] = static_cast<uint8_t>(value + 31 * i);
  return v;
}
template <class V>
KITTENS_DEVICE bool same(const V& a, const V& b) {
  const auto *x = reinterpret_cast<const uint8_t*>(&a), *y = reinterpret_cast<const uint8_t*>(&b);
  bool all = true;
  for (int i = 0; i < int(sizeof(V)); ++i) all = all && x[i] == y[i];
  return all;
}

// Every block writes to the next one, and reads what the one before the previous got.
template <class V>
__global__ void passes_on(int* out) {
  auto* slots = reinterpret_cast<V*>(arch::dynamic_shared());
  const int n = arch::cluster_blocks(), rank = arch::cluster_rank(), i = arch::thread_id();
  arch::cluster_sync();
  arch::store_cluster(slots + i, (rank + 1) % n, make<V>(50 * rank + i));
  arch::cluster_sync();
  const V own = slots[i], other = arch::load_cluster(slots + i, (rank + 2) % n);
  const bool right = same(own, make<V>(50 * ((rank + n - 1) % n) + i)) &&
                     same(other, make<V>(50 * ((rank + 1) % n) + i));
  out[arch::block_x() * kThreads + i] = right ? 1 : 0;
  arch::cluster_sync();
}

template <class V>
void check_passes_on() {
  for (const int blocks : {1, 2, 4}) {
    const buffer<int> out(8 * kThreads);
    run(passes_on<V>,
        {.grid = {8}, .block = {kThreads}, .shared_bytes = kThreads * 16, .cluster = blocks},
        out.data());
    for (const int right : out.get()) CHECK_EQUAL(right, 1);
  }
}

TEST(loads_and_stores_of_every_size) {
  check_passes_on<uint8_t>();
  check_passes_on<unsigned short>();
  check_passes_on<unsigned>();
  check_passes_on<uint2>();
  check_passes_on<uint4>();
}

// All threads of the cluster add to a counter of each block.
__global__ void counts(int* out) {
  auto* count = reinterpret_cast<int*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) *count = 0;
  arch::cluster_sync();
  for (int rank = 0; rank < arch::cluster_blocks(); ++rank) {
    arch::atomic_add(arch::map_shared(count, rank), rank + 1);
  }
  arch::cluster_sync();
  if (arch::thread_id() == 0) out[arch::block_x()] = *count;
}

TEST(atomics_reach_other_blocks) {
  const buffer<int> out(8);
  run(counts, {.grid = {8}, .block = {kThreads}, .shared_bytes = 16, .cluster = 4}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < 8; ++i) CHECK_EQUAL(got[i], 4 * kThreads * (i % 4 + 1));
}

struct mailbox {
  alignas(16) int sent[kThreads], got[kThreads];
  arch::mbarrier full, empty;
};

// A message to the next block in each round, by the copy engine; its source is written again when
// the receiver has said that it came.
__global__ void copies(int* out, int rounds) {
  auto& box = *reinterpret_cast<mailbox*>(arch::dynamic_shared());
  const int n = arch::cluster_blocks(), rank = arch::cluster_rank(), i = arch::thread_id();
  if (i == 0) {
    arch::mbarrier_init(&box.full, 1);
    arch::mbarrier_init(&box.empty, 1);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint32_t parity = round & 1;
    arch::mbarrier_wait(&box.empty, parity ^ 1);  // the next block has got the one before
    box.sent[i] = 1000 * round + 100 * rank + i;
    arch::fence_async_proxy();
    arch::sync_block();
    if (i == 0) {
      arch::mbarrier_arrive_expect_bytes(&box.full, sizeof box.got);
      arch::bulk_copy_cluster(box.got, (rank + 1) % n, box.sent, sizeof box.sent, &box.full);
    }
    arch::mbarrier_wait(&box.full, parity);
    sum += box.got[i];
    arch::fence_async_proxy();  // the next copy waits for this read
    arch::sync_block();
    if (i == 0) arch::mbarrier_arrive_cluster(&box.empty, (rank + n - 1) % n);
  }
  out[arch::block_x() * kThreads + i] = sum;
  arch::cluster_sync();
}

TEST(bulk_copies_reach_other_blocks) {
  constexpr int kRounds = 4;
  for (const int blocks : {2, 4}) {
    const buffer<int> out(8 * kThreads);
    run(copies,
        {.grid = {8}, .block = {kThreads}, .shared_bytes = sizeof(mailbox), .cluster = blocks},
        out.data(), kRounds);
    const std::vector<int> got = out.get();
    for (int t = 0; t < 8 * kThreads; ++t) {
      const int from = (t / kThreads % blocks + blocks - 1) % blocks;
      CHECK_EQUAL(got[t], kRounds * (100 * from + t % kThreads) + 1000 * (0 + 1 + 2 + 3));
    }
  }
}

// Stores, then an arrival that shows them: no barrier of the cluster in between.
__global__ void publishes(int* out) {
  auto& box = *reinterpret_cast<mailbox*>(arch::dynamic_shared());
  const int n = arch::cluster_blocks(), rank = arch::cluster_rank(), i = arch::thread_id();
  if (i == 0) {
    arch::mbarrier_init(&box.full, 2 * kThreads);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  const int next = (rank + 1) % n;
  arch::store_cluster(&box.got[i], next, 100 * rank + i);
  arch::mbarrier_arrive_cluster(&box.full, next, 2);
  arch::mbarrier_wait_cluster(&box.full, 0);
  out[arch::block_x() * kThreads + i] = box.got[kThreads - 1 - i];
  arch::cluster_sync();
}

TEST(arrivals_show_stores) {
  const buffer<int> out(8 * kThreads);
  run(publishes, {.grid = {8}, .block = {kThreads}, .shared_bytes = sizeof(mailbox), .cluster = 4},
      out.data());
  const std::vector<int> got = out.get();
  for (int t = 0; t < 8 * kThreads; ++t) {
    CHECK_EQUAL(got[t], 100 * ((t / kThreads + 3) % 4) + kThreads - 1 - t % kThreads);
  }
}

}  // namespace
