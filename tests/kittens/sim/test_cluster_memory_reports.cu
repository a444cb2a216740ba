// Shared memory of a cluster's other blocks: planted mistakes, and what the simulator says of each.
#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager", "lazy", "random:1"};

std::string line_text(int line) { return "test_cluster_memory_reports.cu:" + std::to_string(line); }

template <class... P>
std::string cluster_report(void (*kernel)(P...), int blocks,
                           const std::type_identity_t<P>&... arguments) {
  return report_of(kernel,
                   {.grid = {2 * blocks}, .block = {32}, .shared_bytes = 4096, .cluster = blocks},
                   arguments...);
}

__global__ void reaches(int rank, int offset, bool syncs) {
  auto* words = reinterpret_cast<unsigned*>(arch::dynamic_shared() + offset);
  if (syncs) arch::cluster_sync();
  arch::store_cluster(words + arch::thread_id(), rank, 1u);
  if (syncs) arch::cluster_sync();
}
constexpr int kStoreLine = __LINE__ - 3;

TEST(accesses_are_checked) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_EQUAL(cluster_report(reaches, 2, 1, 0, true), "");
    CHECK_EQUAL(cluster_report(reaches, 1, 0, 0, false), "");  // no cluster: itself
    const std::string outside = cluster_report(reaches, 2, 2, 0, true);
    CHECK_CONTAINS(outside, "CLUSTER at " + line_text(kStoreLine));
    CHECK_CONTAINS(outside, "rank 2 is not in the cluster of 2 blocks");
    CHECK_CONTAINS(cluster_report(reaches, 1, 1, 0, true),
                   "rank 1 is not in the cluster of 1 blocks");
    CHECK_CONTAINS(cluster_report(reaches, 2, -1, 0, true), "rank -1 is not in the cluster");
    CHECK_CONTAINS(cluster_report(reaches, 2, 1, 4000, true),
                   "are outside of the block's 4096 bytes");
    CHECK_CONTAINS(cluster_report(reaches, 2, 1, 2, true), "is not aligned to 4 bytes");
    CHECK_CONTAINS(cluster_report(reaches, 2, 1, 0, false),
                   "before the cluster's first barrier: rank 1 may not run yet");
  }
}

// Rank 0 ends without waiting for the accesses of rank 1.
__global__ void reaches_late() {
  arch::cluster_sync();
  if (arch::cluster_rank() == 0) return;
  arch::load_cluster(reinterpret_cast<unsigned*>(arch::dynamic_shared()), 0);
}

TEST(accesses_to_a_block_that_has_exited) {
  const with_options chosen("eager");
  CHECK_CONTAINS(cluster_report(reaches_late, 2),
                 "all threads of rank 0 have exited, and its shared memory with them");
}

// Rank 1 copies to rank 0, which waits for it, or not; so does rank 1 at the end, or not.
__global__ void copies(int bytes, int offset, bool is_expected, bool ends_together) {
  uint8_t* s = arch::dynamic_shared();
  auto* full = reinterpret_cast<arch::mbarrier*>(s);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  if (arch::thread_id() == 0 && arch::cluster_rank() == 1) {
    arch::bulk_copy_cluster(s + 1024, 0, s + 2048 + offset, bytes, full);
  }
  if (arch::cluster_rank() == 0 && is_expected) {
    if (arch::thread_id() == 0) arch::mbarrier_arrive_expect_bytes(full, 64);
    arch::mbarrier_wait(full, 0);
  }
  if (ends_together) arch::cluster_sync();
}

__global__ void copies_to_itself() {
  uint8_t* s = arch::dynamic_shared();
  auto* full = reinterpret_cast<arch::mbarrier*>(s);
  if (arch::thread_id() == 0) arch::bulk_copy_cluster(s + 1024, 0, s + 2048, 64, full);
}

TEST(copies_need_a_cluster) {
  CHECK_CONTAINS(cluster_report(copies_to_itself, 1),
                 "bulk_copy_cluster by thread 0 needs a launch with clusters of 2 blocks or more");
}

TEST(copies_are_checked) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_EQUAL(cluster_report(copies, 2, 64, 0, true, true), "");
    CHECK_CONTAINS(cluster_report(copies, 2, 24, 0, true, true),
                   "bytes must be a multiple of 16, got 24");
    CHECK_CONTAINS(cluster_report(copies, 2, 64, 8, true, true),
                   "offset 2056 is not aligned to 16 bytes");
    CHECK_CONTAINS(cluster_report(copies, 2, 4096, 0, true, true),
                   "are outside of the block's 4096 bytes");
  }
  const with_options chosen("lazy");  // which copies late
  CHECK_CONTAINS(cluster_report(copies, 2, 64, 0, true, false),
                 "all threads of rank 1 exit while a copy of this line, by thread 0 of rank 1, is "
                 "still under way from its shared memory");
}

}  // namespace
