// Races between the blocks of a cluster, each planted beside the kernel that is right, and what
// race mode says of it under every policy.
#include "kittens/host/tensor_map.cuh"
#include "race_async.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

enum class cluster_slip { none, read_before_filled, no_sync_after_init, no_end };

// Rank 1 fills both blocks' memory; each block arrives at the other's barrier when it has read.
__global__ void multicasts(cluster_slip slip, const arch::tensor_map map, int* out) {
  arch::mbarrier *full = barrier(8192), *empty = barrier(8200);
  const int rank = arch::cluster_rank(), i = arch::thread_id();
  if (i == 0) {
    arch::mbarrier_init(full, 1);
    arch::mbarrier_init(empty, 2);
    arch::fence_mbarrier_init();
    arch::mbarrier_arrive_expect_bytes(full, kBytes);
  }
  if (slip == cluster_slip::no_sync_after_init) {
    arch::sync_block();
  } else {
    arch::cluster_sync();
  }
  if (rank == 1 && i == 0) arch::tma_load_multicast(words(), &map, full, 3, 0, 0);
  if (slip == cluster_slip::read_before_filled) out[32 * rank + i] = words()[i];
  arch::mbarrier_wait(full, 0);
  out[32 * rank + i] = words()[i];
  arch::sync_warp();
  if (i < 2) arch::mbarrier_arrive_remote(empty, i);
  if (slip == cluster_slip::no_end) return;
  arch::mbarrier_wait(empty, 0);
}

TEST(blocks_of_a_cluster) {
  const buffer<int> from(std::vector<int>(kBytes / 4, 7)), out(64);
  const arch::tensor_map map = host::encode_tensor_map({.data = from.data(),
                                                        .kind = host::dtype::float32,
                                                        .rank = 2,
                                                        .extent = {32, 8},
                                                        .stride_bytes = {128},
                                                        .box = {32, 8},
                                                        .swizzle_bytes = 0});
  const host::launch_config config{.grid = {4}, .block = {32}, .shared_bytes = 16384, .cluster = 2};
  const auto expect = [&](cluster_slip slip, std::initializer_list<const char*> parts) {
    expect_report(parts, multicasts, config, slip, map, out.data());
  };
  expect(cluster_slip::none, {});
  CHECK_EQUAL(out.get()[63], 7);
  expect(cluster_slip::read_before_filled,
         {"RACE at ", "tma_load_multicast by thread 0 of rank 1 writes it",
          "waits for the mbarrier at offset 8192"});
  expect(cluster_slip::no_end, {"CLUSTER at ", "mbarrier_arrive_remote by thread", "exited"});
  const with_options chosen("eager,race");  // under lazy, rank 1 finds no barrier in rank 0
  CHECK_CONTAINS(
      report_of(multicasts, config, cluster_slip::no_sync_after_init, map, out.data()),
      "missing: cluster_sync() between mbarrier_init and the first use by another block");
}

enum class tell_slip { none, arrival_of_a_block, wait_of_a_block };

// Each block writes to the other's memory and tells it so, without a barrier of the cluster.
__global__ void tells(tell_slip slip, int* out) {
  arch::mbarrier* told = barrier(8192);
  const int other = 1 - arch::cluster_rank(), i = arch::thread_id();
  if (i == 0) {
    arch::mbarrier_init(told, 32);
    arch::fence_mbarrier_init();
  }
  arch::cluster_sync();
  arch::store_cluster(&words()[i], other, i);
  if (slip == tell_slip::arrival_of_a_block) {
    arch::mbarrier_arrive_remote(told, other);
  } else {
    arch::mbarrier_arrive_cluster(told, other);
  }
  if (slip == tell_slip::wait_of_a_block) {
    arch::mbarrier_wait(told, 0);
  } else {
    arch::mbarrier_wait_cluster(told, 0);
  }
  out[32 * arch::block_x() + i] = words()[i];
  arch::cluster_sync();
}

TEST(arrivals_and_waits_that_show_another_block_nothing) {
  const buffer<int> out(64);
  const host::launch_config config{.grid = {2}, .block = {32}, .shared_bytes = 16384, .cluster = 2};
  expect_report({}, tells, config, tell_slip::none, out.data());
  for (const tell_slip slip : {tell_slip::arrival_of_a_block, tell_slip::wait_of_a_block}) {
    expect_report({"RACE at ", "of rank 0", "of rank 1", "mbarrier_arrive_cluster by the one"},
                  tells, config, slip, out.data());
  }
}

enum class send_slip { none, source_unfenced, source_overwritten };

// Rank 0 sends what its threads have written to rank 1.
__global__ void sends(send_slip slip, int* out) {
  arch::mbarrier* full = barrier(8192);
  const int rank = arch::cluster_rank(), i = arch::thread_id();
  if (i == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
    if (rank == 1) arch::mbarrier_arrive_expect_bytes(full, 128);
  }
  arch::cluster_sync();
  if (rank == 0) {
    words()[i] = i;
    if (slip != send_slip::source_unfenced) arch::fence_async_proxy();
    arch::sync_warp();
    if (i == 0) arch::bulk_copy_cluster(words(1024), 1, words(), 128, full);
    if (slip == send_slip::source_overwritten) words()[i] = -1;
  } else {
    arch::mbarrier_wait(full, 0);
    out[i] = words(1024)[i];
  }
  arch::cluster_sync();
}

TEST(what_a_copy_to_another_block_reads) {
  const buffer<int> out(32);
  const host::launch_config config{.grid = {2}, .block = {32}, .shared_bytes = 16384, .cluster = 2};
  expect_report({}, sends, config, send_slip::none, out.data());
  expect_report(
      {"PROXY FENCE at ", "bulk_copy_cluster by thread 0 of rank 0 reads", "by ordinary stores"},
      sends, config, send_slip::source_unfenced, out.data());
  expect_report({"RACE at ", "bulk_copy_cluster by thread 0 of rank 0 reads"}, sends, config,
                send_slip::source_overwritten, out.data());
}

}  // namespace
