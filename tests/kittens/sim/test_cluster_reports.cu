// Clusters with planted bugs, and what the simulator says about each.
#include "kittens/arch/arch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager", "lazy", "random:1"};

std::string line_text(int line) { return "test_cluster_reports.cu:" + std::to_string(line); }

template <class... P>
std::string cluster_report(void (*kernel)(P...), int blocks,
                           const std::type_identity_t<P>&... arguments) {
  return report_of(kernel,
                   {.grid = {2 * blocks}, .block = {32}, .shared_bytes = 4096, .cluster = blocks},
                   arguments...);
}

KITTENS_DEVICE arch::mbarrier* barrier(int offset = 0) {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + offset);
}

// ---- the barrier of the cluster

__global__ void one_block_waits_elsewhere() {
  if (arch::cluster_rank() == 1) {
    if (arch::lane_id() < 3) arch::named_barrier_sync(2, 32);
  }
  arch::cluster_sync();
}
constexpr int kSyncLine = __LINE__ - 2;

TEST(deadlock_names_the_blocks) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    const std::string report = cluster_report(one_block_waits_elsewhere, 2);
    CHECK_CONTAINS(report, "DEADLOCK");
    CHECK_CONTAINS(report, " of a cluster of 2");
    CHECK_CONTAINS(report, "32 threads [0-31] of rank 0 wait at " + line_text(kSyncLine) +
                               " for the cluster's barrier: 61 of 64 threads have arrived");
    CHECK_CONTAINS(report, "3 threads [0-2] of rank 1 wait at ");
    CHECK_CONTAINS(report, "29 threads [3-31] of rank 1 wait at ");
  }
}

__global__ void arrives_twice() {
  arch::cluster_arrive();
  arch::cluster_arrive();
}
__global__ void only_waits() { arch::cluster_wait(); }

TEST(arrivals_and_waits_alternate) {
  CHECK_CONTAINS(cluster_report(arrives_twice, 2), "arrives twice at the cluster's barrier");
  CHECK_CONTAINS(cluster_report(only_waits, 1), "without cluster_arrive before");
}

// ---- remote arrivals

__global__ void arrives_at(int rank, int count, bool fences) {
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(barrier(16), 2);
    if (fences) arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  if (arch::thread_id() == 7) {
    arch::mbarrier_arrive_remote(barrier(16), rank < 0 ? 1 - arch::cluster_rank() : rank, count);
  }
  arch::cluster_sync();
}

TEST(remote_arrivals_are_checked) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_EQUAL(cluster_report(arrives_at, 2, -1, 1, true), "");
    CHECK_CONTAINS(cluster_report(arrives_at, 2, -1, 1, false),
                   "mbarrier_arrive_remote, but thread 0, which initialised it, has not called");
    CHECK_CONTAINS(cluster_report(arrives_at, 2, 2, 1, true),
                   "rank 2 is not in the cluster of 2 blocks");
    CHECK_CONTAINS(cluster_report(arrives_at, 4, 3, 3, true),
                   "mbarrier at offset 16 of rank 3: 1 more arrivals than the 2 expected");
  }
}

// Rank 0 exits without waiting for the arrivals of rank 1.
__global__ void exits_early() {
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(barrier(), 32);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  if (arch::cluster_rank() == 1) arch::mbarrier_arrive_remote(barrier(), 0);
}
constexpr int kLateLine = __LINE__ - 2;

TEST(arrivals_at_a_block_that_has_exited) {
  const with_options chosen("eager");
  const std::string report = cluster_report(exits_early, 2);
  CHECK_CONTAINS(report, "CLUSTER at " + line_text(kLateLine));
  CHECK_CONTAINS(report, "all threads of rank 0 have exited, and its shared memory with them");
}

// ---- multicast

struct plan {
  int blocks = 0b11;
  bool rank_0_waits = true, ends_together = true;
};

__global__ void multicasts(const __grid_constant__ arch::tensor_map map, plan p) {
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(barrier(), 1);
    arch::fence_mbarrier_init();
    arch::mbarrier_arrive_expect_bytes(barrier(), 128);
  }
  arch::cluster_sync();
  if (arch::cluster_rank() == 1 && arch::thread_id() == 4) {
    arch::tma_load_multicast(arch::dynamic_shared() + 1024, &map, barrier(),
                             static_cast<uint16_t>(p.blocks), 0);
  }
  if (arch::cluster_rank() == 1 || p.rank_0_waits) arch::mbarrier_wait(barrier(), 0);
  if (p.ends_together) arch::cluster_sync();
}
constexpr int kMulticastLine = __LINE__ - 6;

TEST(multicasts_are_checked) {
  const buffer<uint8_t> tensor(128);
  const arch::tensor_map map = host::encode_tensor_map({.data = tensor.data(),
                                                        .kind = host::dtype::bfloat16,
                                                        .rank = 1,
                                                        .extent = {64},
                                                        .box = {64}});
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_EQUAL(cluster_report(multicasts, 2, map, plan{}), "");
    CHECK_EQUAL(cluster_report(multicasts, 2, map, plan{.ends_together = false}), "");
    CHECK_CONTAINS(cluster_report(multicasts, 2, map, plan{.blocks = 0}),
                   "blocks must be a mask of the cluster's 2 blocks, got 0x0");
    CHECK_CONTAINS(cluster_report(multicasts, 2, map, plan{.blocks = 0b101}), "got 0x5");
    const std::string lost = cluster_report(multicasts, 2, map, plan{.blocks = 0b10});
    CHECK_CONTAINS(lost, "32 threads [0-31] of rank 0 wait at ");
    CHECK_CONTAINS(lost,
                   "mbarrier at offset 0 of rank 0, phase 0 (parity 0): 0 of 1 arrivals and "
                   "128 bytes are missing");
  }
  // Rank 0 is gone when the copy is started, or when it arrives.
  const plan early{.rank_0_waits = false, .ends_together = false};
  {
    const with_options chosen("eager");
    CHECK_CONTAINS(cluster_report(multicasts, 2, map, early), "all threads of rank 0 have exited");
  }
  {
    const with_options chosen("lazy");
    const std::string report = cluster_report(multicasts, 2, map, early);
    CHECK_CONTAINS(report, "BULK COPY at " + line_text(kMulticastLine));
    CHECK_CONTAINS(
        report,
        "all threads of rank 0 exit while a copy of this line, by thread 4 of rank 1, is "
        "still under way to its shared memory");
  }
}

}  // namespace
