// arch/cluster_memory.cuh: what blocks of a cluster read and write in each other's shared memory.
#include "kittens/arch/arch.cuh"
#include "record.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

constexpr int kThreads = 64;

// Each block reads what the next one holds, and writes to the one before.
template <class V>
__global__ void reaches(const V* in, V* out) {
  const int i = arch::thread_id(), n = arch::cluster_blocks(), rank = arch::cluster_rank();
  V* here = reinterpret_cast<V*>(arch::dynamic_shared());
  here[i] = in[arch::block_x() * kThreads + i];
  arch::cluster_sync();
  const V v = arch::load_cluster(here + (i ^ 3), (rank + 1) % n);
  arch::store_cluster(here + kThreads + i, (rank + n - 1) % n, v);
  arch::cluster_sync();
  V* mine = out + 2 * arch::block_x() * kThreads;
  mine[i] = v;
  mine[kThreads + i] = here[kThreads + i];
}

template <class V>
void record_reaches() {
  constexpr int kBlocks = 4;
  std::vector<uint8_t> values(kBlocks * kThreads * sizeof(V));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 31 + i / 256);
  const buffer<uint8_t> in(values), out(2 * values.size());
  run(reaches<V>,
      {.grid = {kBlocks},
       .block = {kThreads},
       .shared_bytes = 2 * kThreads * sizeof(V),
       .cluster = kBlocks},
      reinterpret_cast<const V*>(in.data()), reinterpret_cast<V*>(out.data()));
  record("load_and_store_cluster.bytes_" + to_text(sizeof(V)), out.get());
}

TEST(loads_and_stores) {
  record_reaches<uint8_t>();
  record_reaches<uint16_t>();
  record_reaches<uint32_t>();
  record_reaches<uint2>();
  record_reaches<uint4>();
}

// All threads of the cluster add to words of each of its blocks.
__global__ void adds(int* out) {
  int* words = reinterpret_cast<int*>(arch::dynamic_shared());
  const int i = arch::thread_id(), n = arch::cluster_blocks();
  if (i < 8) words[i] = 1000 * arch::cluster_rank();
  arch::cluster_sync();
  for (int rank = 0; rank < n; ++rank) arch::atomic_add(arch::map_shared(words, rank) + i % 8, i);
  arch::cluster_sync();
  if (i < 8) out[8 * arch::block_x() + i] = words[i];
}

TEST(atomics) {
  for (const int cluster : {2, 4}) {
    const buffer<int> out(4 * 8);
    run(adds, {.grid = {4}, .block = {kThreads}, .shared_bytes = 32, .cluster = cluster},
        out.data());
    record("map_shared.blocks_" + to_text(cluster), out.get());
  }
}

struct mailbox {
  uint32_t sent[2 * kThreads], received[2 * kThreads];
  uint32_t word[kThreads];
  arch::mbarrier full, told;
};

// Each block copies to the next one, and tells it by an arrival that shows ordinary stores.
__global__ void sends(uint32_t* out) {
  auto& s = *reinterpret_cast<mailbox*>(arch::dynamic_shared());
  const int i = arch::thread_id(), n = arch::cluster_blocks(), rank = arch::cluster_rank();
  const int next = (rank + 1) % n;
  for (int k = i; k < 2 * kThreads; k += kThreads) {
    s.sent[k] = 1000 * rank + k;
    s.received[k] = 7;
  }
  if (i == 0) {
    arch::mbarrier_init(&s.full, 1);
    arch::mbarrier_init(&s.told, kThreads + 2);
    arch::fence_mbarrier_init();
  }
  arch::fence_async_proxy();
  arch::cluster_sync();
  if (i == 0) {
    arch::mbarrier_arrive_expect_bytes(&s.full, 256);
    arch::bulk_copy_cluster(s.received + 32, next, s.sent + 16, 256, &s.full);
  }
  arch::store_cluster(s.word + i, next, static_cast<uint32_t>(rank * kThreads + i));
  arch::mbarrier_arrive_cluster(&s.told, next);
  if (i == 0) arch::mbarrier_arrive_cluster(&s.told, next, 2);
  arch::mbarrier_wait(&s.full, 0);
  arch::mbarrier_wait_cluster(&s.told, 0);
  uint32_t* mine = out + 3 * arch::block_x() * kThreads;
  mine[i] = s.word[kThreads - 1 - i];
  for (int k = i; k < 2 * kThreads; k += kThreads) mine[kThreads + k] = s.received[k];
  arch::cluster_sync();
}

TEST(messages) {
  for (const int cluster : {2, 4}) {
    const buffer<uint32_t> out(4 * 3 * kThreads);
    run(sends,
        {.grid = {4}, .block = {kThreads}, .shared_bytes = sizeof(mailbox), .cluster = cluster},
        out.data());
    record("messages.blocks_" + to_text(cluster), out.get());
  }
}

}  // namespace
