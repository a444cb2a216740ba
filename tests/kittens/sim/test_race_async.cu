// Races with copies and products, each planted beside the kernel that is right, and what race mode
// says of it under every policy.
#include <cuda_bf16.h>

#include "race_async.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

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

}  // namespace
