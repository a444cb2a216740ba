// Races with copies, products and other blocks, each planted beside the kernel that is right, and
// what race mode says of it under every policy.
#include <cuda_bf16.h>

#include "kittens/arch/arch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager,race", "lazy,race", "random:1,race", "random:7,race"};
constexpr int kBytes = 1024;  // of a copy

KITTENS_DEVICE arch::mbarrier* barrier(int offset) {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + offset);
}
KITTENS_DEVICE int* words(int offset = 0) {
  return reinterpret_cast<int*>(arch::dynamic_shared() + offset);
}

// Each policy's report, which must contain all the parts; no parts: nothing may be reported.
template <class... P>
void expect_report(std::initializer_list<const char*> parts, void (*kernel)(P...),
                   const host::launch_config& config, const std::type_identity_t<P>&... arguments) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    const std::string report = report_of(kernel, config, arguments...);
    if (parts.size() == 0) CHECK_EQUAL(report, "");
    for (const char* part : parts) CHECK_CONTAINS(report, part);
  }
}

host::launch_config block_of(int threads) {
  return {.grid = {1}, .block = {threads}, .shared_bytes = 16384};
}

// ---- bulk copies

enum class load_slip {
  none,
  read_early,
  released_early,
  no_init_barrier,
  no_fence,
  fence_before_the_read,
  one_lane_fences,
  other_warp_fences,
};

// Two copies through one stage; thread 32 … reads what each brings.
__global__ void loads(load_slip slip, const int* from, int* out) {
  arch::mbarrier *full = barrier(8192), *empty = barrier(8200);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(full, 1);
    arch::mbarrier_init(empty, 32);
    arch::fence_mbarrier_init();
  }
  if (slip != load_slip::no_init_barrier) arch::sync_block();
  for (int round = 0; round < 2; ++round) {
    if (arch::thread_id() == 0) {
      arch::mbarrier_wait(empty, round ^ 1);
      arch::mbarrier_arrive_expect_bytes(full, kBytes);
      arch::bulk_load(words(), from, kBytes, full);
    }
    if (arch::warp_id() == 1) {
      if (slip == load_slip::read_early) out[arch::lane_id()] = words()[arch::lane_id()];
      arch::mbarrier_wait(full, round);
      if (slip == load_slip::released_early) arch::mbarrier_arrive(empty);
      if (slip == load_slip::fence_before_the_read) arch::fence_async_proxy();
      out[arch::lane_id()] = words()[arch::lane_id()];
      if (slip == load_slip::none) arch::fence_async_proxy();
      arch::sync_warp();
      if (slip == load_slip::one_lane_fences && arch::lane_id() == 0) arch::fence_async_proxy();
      arch::sync_warp();
      if (slip != load_slip::released_early) arch::mbarrier_arrive(empty);
    } else if (slip == load_slip::other_warp_fences && round == 0) {
      // The thread that starts the copy fences, behind the arrivals.
      arch::mbarrier_wait(empty, 0);
      arch::fence_async_proxy();
    }
  }
}

TEST(loads_and_who_reads_them) {
  const buffer<int> from(std::vector<int>(kBytes / 4, 7)), out(32);
  const auto expect = [&](load_slip slip, std::initializer_list<const char*> parts) {
    expect_report(parts, loads, block_of(64), slip, from.data(), out.data());
  };
  expect(load_slip::none, {});
  expect(load_slip::read_early,
         {"RACE at ", "bulk_load by thread 0 writes it",
          "whoever reads what the copy brings waits for the mbarrier at offset "
          "8192, where that copy completes"});
  expect(load_slip::released_early, {"RACE at ", "bulk_load by thread 0 writes it",
                                     "whoever starts the copy waits first for an arrival"});
}

// An arrival does not wait for loads as the asynchronous proxy sees them: their own thread fences.
TEST(loads_that_the_next_copy_may_overtake) {
  const buffer<int> from(std::vector<int>(kBytes / 4, 7)), out(32);
  const auto expect = [&](load_slip slip, const char* readers) {
    expect_report({"PROXY FENCE at ", "bulk_load by thread 0 writes shared memory at offset ",
                   readers, "by ordinary loads, and there is no proxy fence of their own",
                   "missing: fence_async_proxy() by each thread that reads"},
                  loads, block_of(64), slip, from.data(), out.data());
  };
  expect(load_slip::no_fence, "; threads 32-63 read it at ");
  expect(load_slip::fence_before_the_read, "; threads 32-63 read it at ");
  expect(load_slip::one_lane_fences, "; threads 33-63 read it at ");
  expect(load_slip::other_warp_fences, "; threads 32-63 read it at ");
}

// Two warps read the same bytes one after the other, and only the second one fences.
__global__ void reads_in_turn(bool both_fence, const int* from, int* out) {
  arch::mbarrier* full = barrier(8192);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
  }
  arch::sync_block();
  for (int round = 0; round < 2; ++round) {
    if (arch::thread_id() == 0) {
      arch::mbarrier_arrive_expect_bytes(full, kBytes);
      arch::bulk_load(words(), from, kBytes, full);
    }
    arch::mbarrier_wait(full, round);
    for (int warp = 0; warp < 2; ++warp) {
      if (arch::warp_id() == warp) {
        out[arch::thread_id()] = words()[arch::lane_id()];
        if (both_fence || warp == 1) arch::fence_async_proxy();
      }
      arch::sync_block();
    }
  }
}

TEST(who_reads_last_does_not_fence_for_who_read_before) {
  const buffer<int> from(std::vector<int>(kBytes / 4, 7)), out(64);
  expect_report({}, reads_in_turn, block_of(64), true, from.data(), out.data());
  expect_report({"PROXY FENCE at ", "threads 0-31 read it at ", "by ordinary loads"}, reads_in_turn,
                block_of(64), false, from.data(), out.data());
}

TEST(a_barrier_used_before_its_init_is_there) {
  const buffer<int> from(std::vector<int>(kBytes / 4, 7)), out(32);
  const with_options chosen("eager,race");  // under lazy it is not even there
  const std::string report =
      report_of(loads, block_of(64), load_slip::no_init_barrier, from.data(), out.data());
  CHECK_CONTAINS(report, "mbarrier_init by thread 0 writes it at ");
  CHECK_CONTAINS(report, "missing: sync_block() between mbarrier_init and the first use");
}

enum class store_slip { none, no_fence, fence_behind, no_barrier, overwritten };

__global__ void stores(store_slip slip, int* to) {
  const int i = arch::thread_id();
  words()[i] = i;
  if (slip != store_slip::no_fence) arch::fence_async_proxy();
  if (slip == store_slip::fence_behind) words()[i] = i;
  if (slip != store_slip::no_barrier) arch::sync_block();
  if (i == 32) {
    arch::bulk_store(to, words(), 256);
    arch::bulk_commit();
    if (slip != store_slip::overwritten) arch::bulk_wait_read<0>();
  }
  arch::sync_block();
  words()[i] = -1;
  if (i == 32) arch::bulk_wait_read<0>();
}

TEST(stores_and_who_writes_them) {
  const buffer<int> to(64);
  const auto expect = [&](store_slip slip, std::initializer_list<const char*> parts) {
    expect_report(parts, stores, block_of(64), slip, to.data());
  };
  expect(store_slip::none, {});
  for (const store_slip slip : {store_slip::no_fence, store_slip::fence_behind}) {
    expect(slip,
           {"PROXY FENCE at ",
            "bulk_store by thread 32 reads shared memory at offset 0; "
            "threads 0-63 write it at ",
            "there is no proxy fence in between", "missing: fence_async_proxy() by the threads"});
  }
  expect(store_slip::no_barrier, {"RACE at ", "bulk_store by thread 32 reads",
                                  "a barrier between the last write and the copy"});
  expect(store_slip::overwritten, {"RACE at ", "bulk_store by thread 32 reads",
                                   "bulk_wait_read by the thread that started the copy"});
}

enum class copy_slip { none, no_wait, no_barrier };

__global__ void copies(copy_slip slip, const int* from, int* out) {
  const int i = arch::thread_id();
  arch::cp_async<16>(words() + 4 * i, from + 4 * i);
  arch::cp_async_commit();
  if (slip != copy_slip::no_wait) arch::cp_async_wait<0>();
  if (slip != copy_slip::no_barrier) arch::sync_block();
  out[i] = words()[i];
  arch::cp_async_wait<0>();
}

TEST(copies_of_threads) {
  const buffer<int> from(std::vector<int>(256, 7)), out(64);
  const auto expect = [&](copy_slip slip, std::initializer_list<const char*> parts) {
    expect_report(parts, copies, block_of(64), slip, from.data(), out.data());
  };
  expect(copy_slip::none, {});
  for (const copy_slip slip : {copy_slip::no_wait, copy_slip::no_barrier}) {
    expect(slip, {"RACE at ", "cp_async by thread", "missing: cp_async_wait by the thread"});
  }
}

// ---- products

enum class product_slip { none, no_fence, no_barrier, half_a_barrier, written_early, read_early };

// d = a·b of ones, both 64 × 16 K-major without swizzle.
__global__ void multiplies(product_slip slip, float* out) {
  const int i = arch::thread_id();
  const __nv_bfloat162 ones = __float2bfloat162_rn(1.0f);
  auto* const pairs = reinterpret_cast<__nv_bfloat162*>(arch::dynamic_shared());
  for (int at = i; at < 1024; at += 128) pairs[at] = ones;
  if (slip != product_slip::no_fence) arch::fence_async_proxy();
  if (slip == product_slip::half_a_barrier) {
    arch::named_barrier_sync(1 + i / 64, 64);
  } else if (slip != product_slip::no_barrier) {
    arch::sync_block();
  }
  float d[32] = {};
  const uint64_t a = arch::matrix_descriptor(arch::shared_address(pairs), 1024, 128, 0);
  const uint64_t b = arch::matrix_descriptor(arch::shared_address(pairs + 512), 1024, 128, 0);
  arch::wgmma_fence();
  arch::wgmma<__nv_bfloat16, 64>(d, a, b, false);
  arch::wgmma_commit();
  if (slip == product_slip::read_early) out[i] = d[3];
  if (slip != product_slip::written_early) arch::wgmma_wait<0>();
  arch::sync_block();
  pairs[i] = ones;
  arch::wgmma_wait<0>();
  out[i] = d[0];
}

TEST(products_and_their_operands) {
  const buffer<float> out(128);
  const auto expect = [&](product_slip slip, std::initializer_list<const char*> parts) {
    expect_report(parts, multiplies, block_of(128), slip, out.data());
  };
  expect(product_slip::none, {});
  CHECK_EQUAL(out.get()[5], 16.0f);
  expect(product_slip::no_fence,
         {"PROXY FENCE at ", "wgmma by threads 0-127 reads", "threads 0-127 write it at "});
  for (const product_slip slip : {product_slip::no_barrier, product_slip::half_a_barrier}) {
    expect(slip, {"RACE at ", "wgmma by threads 0-127 reads",
                  "missing: fence_async_proxy and a barrier of all that write"});
  }
  expect(product_slip::written_early,
         {"RACE at ", "wgmma by threads 0-127 reads", "wgmma_wait by every warp of the product"});
  expect(product_slip::read_early,
         {"RACE at ", "threads 0-127 read accumulator 3, which the product",
          "missing: wgmma_wait, before the registers are used"});
}

// Warps ask for several products before others have asked for the first, and one passes on that
// they are done before they are.
__global__ void releases_early(float* out) {
  const int i = arch::thread_id();
  auto* const pairs = reinterpret_cast<__nv_bfloat162*>(arch::dynamic_shared());
  for (int at = i; at < 1024; at += 160) pairs[at] = __float2bfloat162_rn(1.0f);
  arch::fence_async_proxy();
  arch::sync_block();
  if (i >= 128) {
    arch::named_barrier_sync(1, 64);
    pairs[i] = __float2bfloat162_rn(2.0f);
    return;
  }
  float d[32] = {};
  const uint64_t a = arch::matrix_descriptor(arch::shared_address(pairs), 1024, 128, 0);
  arch::wgmma_fence();
  for (int k = 0; k < 4; ++k) arch::wgmma<__nv_bfloat16, 64>(d, a, a, k > 0);
  arch::wgmma_commit();
  if (i < 32) arch::named_barrier_arrive(1, 64);  // its products are under way
  arch::wgmma_wait<0>();
  out[i] = d[0];
}

TEST(a_product_under_way_when_its_operand_is_released) {
  const buffer<float> out(128);
  expect_report({"RACE at ", "wgmma by threads 0-127 reads", "threads 128-159 write it at "},
                releases_early, block_of(160), out.data());
}

// ---- clusters

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
