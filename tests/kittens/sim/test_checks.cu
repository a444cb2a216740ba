// What the simulator checks of memory accesses: bounds, alignment, guards and uninitialised values.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kittens/arch/arch.cuh"
#include "kittens/pipeline/programmatic_launch.cuh"
#include "planted.h"
#include "sim/shared_memory.hpp"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::run;
using testing::with_options;

namespace {

__global__ void loads_shared(int offset) {
  arch::load_shared(reinterpret_cast<const uint4*>(arch::dynamic_shared() + offset));
}
constexpr int kLoadLine = __LINE__ - 2;

__global__ void loads_what_it_has_stored(int offset) {
  auto* const at = reinterpret_cast<uint4*>(arch::dynamic_shared() + offset);
  arch::store_shared(at, uint4{});
  arch::load_shared(at);
}

TEST(shared_access_out_of_bounds) {
  CHECK_EQUAL(report_of(loads_what_it_has_stored, 1, 4080), "");
  for (const int offset : {-16, 4096, 4088}) {
    const std::string report = report_of(loads_shared, 32, offset);
    CHECK_CONTAINS(report, "SHARED MEMORY at test_checks.cu:" + std::to_string(kLoadLine));
    CHECK_CONTAINS(report, "load_shared by thread ");
    CHECK_CONTAINS(report, "16 bytes at offset " + std::to_string(offset) +
                               " are outside of the block's 4096 bytes");
    CHECK_CONTAINS(report, "loads_shared");
  }
}

TEST(shared_access_misaligned) {
  CHECK_CONTAINS(report_of(loads_shared, 32, 8), "offset 8 is not aligned to 16 bytes");
}

__global__ void stores_to(float* p) { arch::store_shared(p, 1.0f); }

TEST(shared_access_to_global_memory) {
  const buffer<float> global(1);
  CHECK_CONTAINS(report_of(stores_to, 32, global.data()), "is not in shared memory");
}

__global__ void loads_global(const uint8_t* p) {
  arch::load_global(reinterpret_cast<const float4*>(p));
}

TEST(global_access_misaligned_or_null) {
  const buffer<uint8_t> global(64);
  CHECK_EQUAL(report_of(loads_global, 32, global.data() + 16), "");
  CHECK_CONTAINS(report_of(loads_global, 32, global.data() + 4), "is not aligned to 16 bytes");
  CHECK_CONTAINS(report_of(loads_global, 32, nullptr), "is null or close to it");
}

__global__ void loads_shared_as_global() {
  arch::load_global(reinterpret_cast<const float*>(arch::dynamic_shared()));
}

TEST(global_access_to_shared_memory) {
  CHECK_CONTAINS(report_of(loads_shared_as_global, 32),
                 "is in shared memory, not in global memory");
}

__global__ void loads_float(const float* p) { arch::load_global(p); }

TEST(global_access_next_to_a_buffer) {
  const buffer<float> global(10);
  CHECK_EQUAL(report_of(loads_float, 1, global.data()), "");
  CHECK_EQUAL(report_of(loads_float, 1, global.data() + 9), "");
  CHECK_CONTAINS(report_of(loads_float, 1, global.data() + 10),
                 "load_global by thread 0: 4 bytes past the end of a buffer of 40 bytes");
  CHECK_CONTAINS(report_of(loads_float, 1, global.data() + 73), "256 bytes past the end of");
  CHECK_CONTAINS(report_of(loads_float, 1, global.data() - 1),
                 "load_global by thread 0: 4 bytes before the start of a buffer of 40 bytes");
  CHECK_CONTAINS(report_of(loads_float, 1, global.data() - 64), "256 bytes before the start of");
}

// ---- programmatic dependent launch

// wait: 0: all threads before they load; 1: all but one of them; 2: all, after.
__global__ void loads_early(const float* p, int wait) {
  if (wait == 0 || (wait == 1 && arch::thread_id() != 5)) arch::wait_prerequisites();
  arch::load_global(p);
  if (wait == 2) arch::wait_prerequisites();
}

TEST(global_access_before_earlier_kernels_have_ended) {
  const buffer<float> global(1);
  host::launch_config shape = {.grid = {2}, .block = {32}, .programmatic = true};
  CHECK_EQUAL(report_of(loads_early, shape, global.data(), 0), "");
  CHECK_CONTAINS(report_of(loads_early, shape, global.data(), 1),
                 "load_global by thread 5, which has not called wait_prerequisites");
  CHECK_CONTAINS(report_of(loads_early, shape, global.data(), 2), "PDL at test_checks.cu:");
  shape.programmatic = false;
  for (const int wait : {0, 1, 2}) {
    CHECK_EQUAL(report_of(loads_early, shape, global.data(), wait), "");
  }
}

__global__ void begins_with_a_load(const float* p) { arch::load_global(p); }
__global__ void begins_as_dependent(const float* p) {
  begin_dependent_grid();
  arch::load_global(p);
}

TEST(only_small_grids_are_programmatic) {
  const buffer<float> global(1);
  const auto report = [&](auto kernel, const host::dim& grid) {
    return testing::error_of([&] {
      host::launch_programmatic(kernel, {.grid = grid, .block = {1}}, nullptr, global.data());
    });
  };
  for (const host::dim& small : {host::dim{1}, {4096}, {2, 2048}, {16, 16, 16}}) {
    CHECK_CONTAINS(report(begins_with_a_load, small), "has not called wait_prerequisites");
    CHECK_EQUAL(report(begins_as_dependent, small), "");
  }
  for (const host::dim& large : {host::dim{4097}, {1, 4097}, {17, 16, 16}}) {
    CHECK_EQUAL(report(begins_with_a_load, large), "");
    CHECK_EQUAL(report(begins_as_dependent, large), "");
  }
  CHECK_CONTAINS(report(begins_as_dependent, {-1, -1}), "grid x must be 1 to 2147483647, got -1");
}

// What is copied or counted: 0: nothing, a lane just ends; 1: cp.async; 2: cp.async of nothing;
// 3: a bulk copy; 4: an atomic; 5: an atomic in shared memory.
__global__ void touches_early(int* p, int what) {
  auto* shared = reinterpret_cast<int*>(arch::dynamic_shared());
  if (what == 0 && arch::thread_id() == 7) return;
  if (what == 1 || what == 2) arch::cp_async<4>(shared + arch::thread_id(), p, what == 1);
  if (what == 3) arch::bulk_store(p, shared, 16);
  if (what == 4) arch::atomic_add(p, 1);
  if (what == 5) arch::store_shared(shared + arch::thread_id(), 1);
  if (what == 5) arch::atomic_add(shared + arch::thread_id(), 1);
  arch::wait_prerequisites();
}

TEST(every_way_to_global_memory_is_watched_in_a_programmatic_launch) {
  const buffer<int> global(32);
  const auto report = [&](int what) {
    return report_of(touches_early,
                     {.grid = {1}, .block = {32}, .shared_bytes = 256, .programmatic = true},
                     global.data(), what);
  };
  CHECK_CONTAINS(report(0), "PDL: thread 7 ends without wait_prerequisites");
  CHECK_CONTAINS(report(1), "cp_async by thread ");
  CHECK_CONTAINS(report(3), "bulk_store by thread ");
  CHECK_CONTAINS(report(4), "atomic_add by thread ");
  for (const int what : {1, 3, 4}) CHECK_CONTAINS(report(what), "has not called wait_prereq");
  for (const int harmless : {2, 5}) CHECK_EQUAL(report(harmless), "");
}

TEST(guards_end_when_they_are_released) {
  const buffer<float> global(100);
  const float* inner = global.data() + 50;
  sim::guard(inner, {4, 8});
  CHECK_CONTAINS(report_of(loads_float, 1, inner + 1), "past the end of a buffer of 4 bytes");
  CHECK_EQUAL(report_of(loads_float, 1, inner), "");
  sim::release_guards(inner);
  CHECK_EQUAL(report_of(loads_float, 1, inner + 1), "");
}

__global__ void adds_at(int* p) { arch::atomic_add(p, 1); }

TEST(atomics_are_checked) {
  CHECK_CONTAINS(report_of(adds_at, 32, nullptr), "atomic_add by thread ");
  const buffer<uint8_t> global(64);
  CHECK_CONTAINS(report_of(adds_at, 32, reinterpret_cast<int*>(global.data() + 2)),
                 "is not aligned to 4 bytes");
}

__global__ void writes_byte(int offset) { arch::dynamic_shared()[offset] = 1; }

TEST(plain_writes_outside_are_found_at_the_end) {
  CHECK_EQUAL(report_of(writes_byte, 1, 4095), "");
  for (const int offset : {-1, -4000, 4096, 8000}) {
    CHECK_CONTAINS(
        report_of(writes_byte, 1, offset),
        "the block wrote at offset " + std::to_string(offset) + ", outside of its 4096 bytes");
  }
}

__global__ void reads_unwritten(float* as_float, __nv_bfloat16* as_bf16, __half* as_half) {
  const int i = arch::thread_id();
  as_float[i] = reinterpret_cast<float*>(arch::dynamic_shared())[i];
  as_bf16[i] = reinterpret_cast<__nv_bfloat16*>(arch::dynamic_shared())[i];
  as_half[i] = reinterpret_cast<__half*>(arch::dynamic_shared())[i];
  arch::sync_block();
  reinterpret_cast<float*>(arch::dynamic_shared())[i] =
      0;  // the next block finds NaNs all the same
}

TEST(unwritten_shared_memory_is_nan) {
  const auto chosen = testing::without_race_mode();
  const buffer<float> as_float(32);
  const buffer<__nv_bfloat16> as_bf16(32);
  const buffer<__half> as_half(32);
  run(reads_unwritten, {.grid = {3}, .block = {32}, .shared_bytes = 128}, as_float.data(),
      as_bf16.data(), as_half.data());
  for (const float v : as_float.get()) CHECK(std::isnan(v));
  for (const __nv_bfloat16 v : as_bf16.get()) CHECK(std::isnan(__bfloat162float(v)));
  for (const __half v : as_half.get()) CHECK(std::isnan(__half2float(v)));
}

__global__ void copies_async(const uint8_t* from, int offset, bool predicate) {
  arch::cp_async<16>(arch::dynamic_shared() + offset, from, predicate);
  arch::cp_async_commit();
  arch::cp_async_wait<0>();
}

TEST(asynchronous_copies_are_checked) {
  const buffer<uint8_t> global(64);
  for (const char* policy : {"eager", "lazy", "random"}) {
    const with_options chosen(policy);
    CHECK_EQUAL(report_of(copies_async, 1, global.data(), 4080, true), "");
    CHECK_CONTAINS(report_of(copies_async, 1, global.data(), 4096, true), "cp_async by thread 0");
    CHECK_CONTAINS(report_of(copies_async, 1, global.data(), 8, true), "is not aligned");
    CHECK_CONTAINS(report_of(copies_async, 1, global.data() + 8, 0, true), "is not aligned");
    CHECK_CONTAINS(report_of(copies_async, 1, nullptr, 0, true), "is null");
    CHECK_EQUAL(report_of(copies_async, 1, nullptr, 0, false), "");
  }
}

}  // namespace
