// What a programmatic launch is promised to be constant: what it may then read early, and the
// kernels in front of it that break the promise.
#include <cuda_bf16.h>

#include <array>
#include <span>

#include "kittens/arch/arch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::error_of;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager", "lazy", "random:1", "eager,race", "random:3,race"};
constexpr int kWords = 64;

KITTENS_DEVICE int* words(int offset = 0) {
  return reinterpret_cast<int*>(arch::dynamic_shared() + offset);
}

// Behind it a promise is kept, whatever was written before.
__global__ void does_nothing() {}

// ---- what may be read before the wait

enum class touch { load, streaming, cp_async, bulk_load, store, add, acquire, bulk_store };

// Of each way, by one thread; `wait` first, or behind it.
__global__ void touches(touch how, int* p, bool waits) {
  auto* const full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + 512);
  if (waits) arch::wait_prerequisites();
  switch (how) {
    case touch::load: arch::load_global(p); break;
    case touch::streaming: arch::load_global_streaming(p); break;
    case touch::cp_async:
      arch::cp_async<4>(words(), p);
      arch::cp_async_commit();
      arch::cp_async_wait<0>();
      break;
    case touch::bulk_load:
      arch::mbarrier_init(full, 1);
      arch::fence_mbarrier_init();
      arch::mbarrier_arrive_expect_bytes(full, 16);
      arch::bulk_load(words(), p, 16, full);
      arch::mbarrier_wait(full, 0);
      break;
    case touch::store: arch::store_global(p, 1); break;
    case touch::add: arch::atomic_add(p, 1); break;
    case touch::acquire: arch::load_acquire(p); break;
    case touch::bulk_store:
      for (int i = 0; i < 4; ++i) words()[i] = 1;
      arch::fence_async_proxy();
      arch::bulk_store(p, words(), 16);
      arch::bulk_commit();
      arch::bulk_wait<0>();
      break;
  }
  if (!waits) arch::wait_prerequisites();
}

host::launch_config programmatic(std::span<const host::memory_range> constant) {
  return {
      .grid = {1}, .block = {1}, .shared_bytes = 1024, .programmatic = true, .constant = constant};
}

TEST(what_is_constant_is_read_before_the_wait) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  const host::memory_range all[] = {{given.data(), kWords * 4}};
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    for (const touch how : {touch::load, touch::streaming, touch::cp_async, touch::bulk_load}) {
      CHECK_EQUAL(report_of(touches, programmatic(all), how, given.data() + 8, false), "");
    }
    for (const touch how : {touch::store, touch::add, touch::acquire, touch::bulk_store}) {
      const std::string report =
          report_of(touches, programmatic(all), how, given.data() + 8, false);
      CHECK_CONTAINS(report, "PDL at test_constant.cu:");
      CHECK_CONTAINS(report, "which has not called wait_prerequisites");
      CHECK_EQUAL(report_of(touches, programmatic(all), how, given.data() + 8, true), "");
      testing::run(does_nothing, {.grid = {1}, .block = {1}});
    }
  }
}

TEST(all_of_a_read_lies_in_what_is_constant) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  const host::memory_range some[] = {{given.data() + 4, 16}, {given.data() + 16, 4}};
  const auto reads = [&](touch how, int at) {
    return report_of(touches, programmatic(some), how, given.data() + at, false);
  };
  for (const int inside : {4, 7, 16}) CHECK_EQUAL(reads(touch::load, inside), "");
  for (const int outside : {3, 8, 15, 17}) CHECK_CONTAINS(reads(touch::load, outside), "PDL at ");
  CHECK_EQUAL(reads(touch::bulk_load, 4), "");
  CHECK_CONTAINS(reads(touch::bulk_load, 0), "PDL at ");
  CHECK_CONTAINS(reads(touch::bulk_load, 16), "PDL at ");  // 4 of its 16 bytes
  CHECK_CONTAINS(report_of(touches, programmatic({}), touch::load, given.data(), false), "PDL");
}

using box_tile = __nv_bfloat16[16 * 64];

__global__ void loads_a_box(const __grid_constant__ arch::tensor_map map, int row) {
  auto* const full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + 4096);
  arch::mbarrier_init(full, 1);
  arch::fence_mbarrier_init();
  arch::mbarrier_arrive_expect_bytes(full, sizeof(box_tile));
  arch::tma_load(words(), &map, full, 0, row);
  arch::mbarrier_wait(full, 0);
  arch::wait_prerequisites();
}

// Rows of 80 columns, of which the tensor has 64 and the box too: what lies between is not read.
TEST(the_rows_of_a_box_lie_in_what_is_constant) {
  constexpr int kRows = 40, kStride = 80, kCols = 64;
  const buffer<__nv_bfloat16> given(
      std::vector<__nv_bfloat16>(kRows * kStride, __float2bfloat16(1.0f)));
  const arch::tensor_map map = host::encode_tensor_map({.data = given.data(),
                                                        .kind = host::dtype::bfloat16,
                                                        .rank = 2,
                                                        .extent = {kCols, kRows},
                                                        .stride_bytes = {kStride * 2},
                                                        .box = {kCols, 16},
                                                        .swizzle_bytes = 128});
  const auto report = [&](std::span<const host::memory_range> constant, int row) {
    host::launch_config config = programmatic(constant);
    config.shared_bytes = 8192;
    return report_of(loads_a_box, config, map, row);
  };
  const host::memory_range all[] = {{given.data(), ((kRows - 1) * kStride + kCols) * 2}};
  for (const int row : {0, 7, 32}) CHECK_EQUAL(report(all, row), "");  // 32: past the last row
  const host::memory_range first[] = {{given.data(), (19 * kStride + kCols) * 2}};
  CHECK_EQUAL(report(first, 4), "");
  CHECK_CONTAINS(report(first, 5), "PDL at test_constant.cu:");
  CHECK_CONTAINS(report({}, 0), "tma_load by thread 0, which has not called wait_prerequisites");
}

// ---- kernels in front

enum class write { store, plain, add, release, bulk_store, none };

__global__ void writes(write how, int* p) {
  switch (how) {
    case write::store: arch::store_global(p, 1); break;
    case write::plain: *p = 1; break;
    case write::add: arch::atomic_add(p, 1); break;
    case write::release: arch::store_release(p, 1); break;
    case write::bulk_store:
      for (int i = 0; i < 4; ++i) words()[i] = 1;
      arch::fence_async_proxy();
      arch::bulk_store(p, words(), 16);
      arch::bulk_commit();
      arch::bulk_wait<0>();
      break;
    case write::none: arch::load_global(p); break;
  }
}
__global__ void reads_early(const int* p) {
  arch::load_global(p);
  arch::wait_prerequisites();
}

constexpr host::launch_config kPlain = {.grid = {1}, .block = {1}, .shared_bytes = 1024};

std::string read_early(const buffer<int>& p, host::stream s = nullptr, bool overlaps = true) {
  const host::memory_range all[] = {{p.data(), kWords * 4}};
  host::launch_config config = programmatic(all);
  config.programmatic = overlaps;
  return error_of([&] { host::launch(reads_early, config, s, p.data()); });
}

TEST(a_kernel_in_front_that_writes_what_is_constant) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  for (const char* policy : {"eager,race", "lazy,race", "random:1,race"}) {
    const with_options chosen(policy);
    for (const write how :
         {write::store, write::plain, write::add, write::release, write::bulk_store}) {
      testing::run(writes, kPlain, how, given.data() + 12);
      const std::string report = read_early(given);
      CHECK_CONTAINS(report, "RACE: ");
      CHECK_CONTAINS(report,
                     "reads_early is launched with the promise that constant[0], 256 bytes,");
      CHECK_CONTAINS(report, "writes, the kernel in front of it, writes ");
      CHECK_CONTAINS(report, how == write::bulk_store ? "writes 16 of them, from offset 48 on"
                                                      : "writes 4 of them, from offset 48 on");
      CHECK_CONTAINS(report, "missing: another kernel between the two");
    }
  }
}

TEST(a_promise_that_is_kept) {
  const buffer<int> given(std::vector<int>(kWords, 3)), other(kWords);
  const with_options chosen("eager,race");
  testing::run(writes, kPlain, write::none, given.data());
  CHECK_EQUAL(read_early(given), "");
  testing::run(writes, kPlain, write::store, other.data());
  CHECK_EQUAL(read_early(given), "");
  // One kernel later.
  testing::run(writes, kPlain, write::store, given.data());
  testing::run(writes, kPlain, write::store, other.data());
  CHECK_EQUAL(read_early(given), "");
  // A launch that overlaps nothing.
  testing::run(writes, kPlain, write::store, given.data());
  CHECK_EQUAL(read_early(given, nullptr, /*overlaps=*/false), "");
}

TEST(each_byte_of_what_is_constant) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  const with_options chosen("eager,race");
  const host::memory_range some[] = {{given.data(), 4}, {given.data() + 2, 4}};
  const auto report = [&](int word) {
    testing::run(writes, kPlain, write::plain, given.data() + word);
    return report_of(reads_early, programmatic(some), given.data());
  };
  CHECK_CONTAINS(report(0), "constant[0], 4 bytes,");
  CHECK_CONTAINS(report(2), "constant[1], 4 bytes,");
  CHECK_EQUAL(report(1), "");
  CHECK_EQUAL(report(3), "");
}

TEST(streams_are_apart) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  const with_options chosen("eager,race");
  int a = 0, b = 0;
  host::launch(writes, kPlain, &a, write::store, given.data());
  CHECK_EQUAL(read_early(given, &b), "");
  CHECK_CONTAINS(read_early(given, &a), "writes, the kernel in front of it,");
}

// A buffer's memory is another one's before, perhaps; what the host has written is no kernel's.
TEST(what_was_written_over_is_nobodys) {
  const with_options chosen("eager,race");
  std::array<int, kWords> memory{};
  const host::memory_range all[] = {{memory.data(), sizeof(memory)}};
  testing::run(writes, kPlain, write::store, memory.data());
  memory.fill(5);
  CHECK_EQUAL(report_of(reads_early, programmatic(all), memory.data()), "");
}

__global__ void lets_the_next_in(bool early) {
  if (early) arch::launch_dependents();
  arch::wait_prerequisites();
  if (!early) arch::launch_dependents();
}

TEST(a_kernel_in_front_of_one_that_lets_the_next_in_before_it_waits) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  const with_options chosen("eager,race");
  for (const bool early : {false, true}) {
    testing::run(writes, kPlain, write::store, given.data());
    testing::run(lets_the_next_in, programmatic({}), early);
    const std::string report = read_early(given);
    if (early) {
      CHECK_CONTAINS(report,
                     "writes, which may still run beside the kernel in front of it, writes");
    } else {
      CHECK_EQUAL(report, "");
    }
  }
}

TEST(without_race_mode_promises_are_not_checked) {
  const buffer<int> given(std::vector<int>(kWords, 3));
  {
    const with_options chosen("eager");
    testing::run(writes, kPlain, write::store, given.data());
    CHECK_EQUAL(read_early(given), "");
  }
  const with_options chosen("eager,race");
  testing::run(writes, kPlain, write::store, given.data());
  {
    const with_options plain("eager");
    testing::run(writes, kPlain, write::none, given.data());
  }
  CHECK_EQUAL(read_early(given), "");
}

}  // namespace
