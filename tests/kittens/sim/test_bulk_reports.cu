// Kernels with planted bugs around mbarriers and bulk copies, and what the simulator says about
// each.
#include "kittens/arch/arch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::run;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager", "lazy", "random:1"};

std::string line_text(int line) { return "test_bulk_reports.cu:" + std::to_string(line); }

KITTENS_DEVICE arch::mbarrier* barrier(int offset = 0) {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + offset);
}

// ---- mbarriers

enum class misuse {
  not_initialised,
  initialised_twice,
  no_arrivals,
  parity_two,
  after_invalidation,
  written_over,
  too_many_arrivals,
  misaligned,
  too_many_bytes_expected,
};

__global__ void misuses(misuse what) {
  arch::mbarrier* b = barrier(64);
  if (what == misuse::not_initialised) arch::mbarrier_arrive(b);
  arch::mbarrier_init(b, what == misuse::no_arrivals ? 0 : 2);
  switch (what) {
    case misuse::initialised_twice: arch::mbarrier_init(b, 2); break;
    case misuse::parity_two: arch::mbarrier_wait(b, 2); break;
    case misuse::after_invalidation:
      arch::mbarrier_invalidate(b);
      arch::mbarrier_wait(b, 0);
      break;
    case misuse::written_over:
      b->state += 1;
      arch::mbarrier_arrive(b);
      break;
    case misuse::too_many_arrivals:
      arch::mbarrier_arrive(b);
      arch::mbarrier_arrive(b, 2);
      break;
    case misuse::misaligned: arch::mbarrier_arrive(barrier(68)); break;
    case misuse::too_many_bytes_expected: arch::mbarrier_expect_bytes(b, 1 << 20); break;
    default: break;
  }
}

TEST(misused_mbarriers) {
  const std::pair<misuse, const char*> cases[] = {
      {misuse::not_initialised,
       "mbarrier_arrive by thread 0: no mbarrier was initialised at offset 64"},
      {misuse::initialised_twice, "mbarrier at offset 64: mbarrier_init, but it is initialised"},
      {misuse::no_arrivals, "arrivals must be 1 to 1048575, got 0"},
      {misuse::parity_two, "parity must be 0 or 1, got 2"},
      {misuse::after_invalidation, "mbarrier_wait, but it was invalidated"},
      {misuse::written_over, "mbarrier_arrive, but its 8 bytes have been written over"},
      {misuse::too_many_arrivals, "1 more arrivals than the 2 expected in a phase: 1 were missing"},
      {misuse::misaligned, "mbarrier_arrive by thread 0: offset 68 is not aligned to 8 bytes"},
      {misuse::too_many_bytes_expected, "at most 1048575 bytes can be expected in a phase"},
  };
  for (const auto& [what, text] : cases) CHECK_CONTAINS(report_of(misuses, 1, what), text);
}

__global__ void waits_for_more(int* out) {
  arch::mbarrier* b = barrier(128);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(b, 33);
    arch::fence_mbarrier_init();
  }
  arch::sync_block();
  if (arch::thread_id() == 40) arch::mbarrier_arrive_expect_bytes(b, 256);
  if (arch::warp_id() == 0) arch::mbarrier_wait(b, 0);
  out[arch::thread_id()] = 1;
}
constexpr int kWaitLine = __LINE__ - 3;

TEST(deadlock_says_what_is_missing) {
  const buffer<int> out(64);
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    const std::string report = report_of(waits_for_more, 64, out.data());
    CHECK_CONTAINS(report, "DEADLOCK: no thread can run");
    CHECK_CONTAINS(report, "32 threads [0-31] wait at " + line_text(kWaitLine) +
                               " for mbarrier at offset 128, phase 0 (parity 0): 32 of 33 arrivals "
                               "and 256 bytes are missing");
    CHECK_CONTAINS(report, "32 threads [32-63] have exited");
  }
}

__global__ void invalidates_under_a_waiter() {
  arch::mbarrier* b = barrier();
  if (arch::thread_id() == 0) arch::mbarrier_init(b, 1);
  arch::sync_block();
  if (arch::thread_id() == 1) arch::mbarrier_wait(b, 0);
  if (arch::thread_id() == 0) arch::mbarrier_invalidate(b);
}

TEST(a_barrier_that_someone_waits_for_is_invalidated) {
  for (const char* policy : {"eager", "lazy"}) {  // thread 1 waits, or finds it gone
    const with_options chosen(policy);
    const std::string report = report_of(invalidates_under_a_waiter, 32);
    CHECK_CONTAINS(report, "MBARRIER at ");
    CHECK_CONTAINS(report, "invalidate");
  }
}

// ---- bulk copies

struct plan {
  int dst = 1024, full = 0, expected = 64;
  bool fences = true, waits = true;
};

__global__ void loads_bytes(const uint8_t* from, int bytes, plan p) {
  arch::mbarrier* full = barrier(p.full);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(barrier(0), 1);
    if (p.fences) arch::fence_mbarrier_init();
    arch::mbarrier_arrive_expect_bytes(barrier(0), p.expected);
    arch::bulk_load(arch::dynamic_shared() + p.dst, from, bytes, full);
  }
  arch::sync_block();
  if (p.waits) arch::mbarrier_wait(full, 0);
}
constexpr int kBulkLine = __LINE__ - 5;

TEST(bulk_loads_are_checked) {
  const buffer<uint8_t> from(64);
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    const auto report = [&](int offset, int bytes, plan p) {
      return report_of(loads_bytes, 64, from.data() + offset, bytes, p);
    };
    CHECK_EQUAL(report(0, 64, {}), "");
    const std::string more = report(0, 64, {.expected = 48});
    CHECK_CONTAINS(more, "MBARRIER at " + line_text(kBulkLine));
    CHECK_CONTAINS(more, "16 bytes more than expected came in phase 0");
    CHECK_CONTAINS(report(0, 64, {.expected = 80}), "0 of 1 arrivals and 16 bytes are missing");
    CHECK_CONTAINS(report(0, 64, {.fences = false}), "has not called fence_mbarrier_init");
    CHECK_CONTAINS(report(0, 64, {.full = 8}), "no mbarrier was initialised at offset 8");
    CHECK_CONTAINS(report(0, 64, {.dst = 4040}), "are outside of the block's 4096 bytes");
    CHECK_CONTAINS(report(0, 64, {.dst = 1028}), "offset 1028 is not aligned to 16 bytes");
    CHECK_CONTAINS(report(0, 40, {}), "bytes must be a multiple of 16, got 40");
    CHECK_CONTAINS(report(4, 16, {}), "is not aligned to 16 bytes");
    CHECK_CONTAINS(report(16, 64, {}),
                   "bulk_load by thread 0: 16 bytes past the end of a buffer of");
  }
}

TEST(a_block_exits_under_its_own_load) {
  const buffer<uint8_t> from(64);
  const with_options chosen("lazy");
  const std::string report = report_of(loads_bytes, 64, from.data(), 64, plan{.waits = false});
  CHECK_CONTAINS(report, "BULK COPY at " + line_text(kBulkLine));
  CHECK_CONTAINS(report,
                 "all threads of rank 0 exit while a copy of this line, by thread 0 of rank 0");
}

__global__ void overwrites_the_barrier(const uint8_t* from) {
  arch::mbarrier_init(barrier(), 1);
  arch::fence_mbarrier_init();
  arch::mbarrier_arrive_expect_bytes(barrier(), 64);
  arch::bulk_load(arch::dynamic_shared(), from, 64, barrier());
  arch::mbarrier_wait(barrier(), 0);
}

TEST(a_load_over_its_own_barrier) {
  const buffer<uint8_t> from(64);
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_CONTAINS(report_of(overwrites_the_barrier, 1, from.data()), "have been written over");
  }
}

enum class ending { waits, waits_for_the_read, does_not_wait, does_not_commit };

__global__ void stores_bytes(uint8_t* to, ending how) {
  if (arch::thread_id() != 3) return;
  for (int i = 0; i < 64; ++i) arch::dynamic_shared()[i] = 1;
  arch::bulk_store(to, arch::dynamic_shared(), 64);
  if (how != ending::does_not_commit) arch::bulk_commit();
  if (how == ending::waits) arch::bulk_wait<0>();
  if (how == ending::waits_for_the_read) arch::bulk_wait_read<0>();
}
constexpr int kStoreLine = __LINE__ - 5;

TEST(a_thread_exits_under_its_store) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    for (const ending how : {ending::waits, ending::waits_for_the_read}) {
      const buffer<uint8_t> to(64);
      CHECK_EQUAL(report_of(stores_bytes, 32, to.data(), how), "");
      CHECK_EQUAL(to.get()[63], 1);
    }
    const buffer<uint8_t> to(64);
    const std::string open = report_of(stores_bytes, 32, to.data(), ending::does_not_wait);
    CHECK_CONTAINS(open, "BULK COPY at " + line_text(kStoreLine));
    CHECK_CONTAINS(open,
                   "thread 3 exits while its store of this line may still read shared memory");
    CHECK_CONTAINS(report_of(stores_bytes, 32, to.data(), ending::does_not_commit),
                   "thread 3 exits without bulk_commit after a store of this line");
    CHECK_CONTAINS(report_of(stores_bytes, 32, to.data() + 16, ending::waits),
                   "bulk_store by thread 3: 16 bytes past the end of a buffer of 64 bytes");
  }
}

// What a missing wait does to the numbers.
__global__ void writes_the_source_again(float* to, bool waits) {
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  for (int i = 0; i < 16; ++i) shared[i] = 1;
  arch::bulk_store(to, shared, 64);
  arch::bulk_commit();
  if (waits) arch::bulk_wait_read<0>();
  for (int i = 0; i < 16; ++i) shared[i] = 2;
  arch::bulk_wait_read<0>();
}

TEST(a_source_written_too_early) {
  const with_options chosen("lazy");
  for (const bool waits : {true, false}) {
    const buffer<float> to(16);
    CHECK_EQUAL(report_of(writes_the_source_again, 1, to.data(), waits), "");
    CHECK_EQUAL(to.get()[0], waits ? 1.0f : 2.0f);
  }
}

__global__ void reads_its_store(float* to, float* out, bool waits) {
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  for (int i = 0; i < 16; ++i) shared[i] = 1;
  arch::bulk_store(to, shared, 64);
  arch::bulk_commit();
  arch::bulk_wait_read<0>();
  if (waits) arch::bulk_wait<0>();
  out[0] = to[0];
}

TEST(a_destination_read_too_early) {
  const with_options chosen("lazy");
  for (const bool waits : {true, false}) {
    const buffer<float> to(std::vector<float>(16, 5.0f)), out(1);
    CHECK_EQUAL(report_of(reads_its_store, 1, to.data(), out.data(), waits), "");
    CHECK_EQUAL(out.get()[0], waits ? 1.0f : 5.0f);
  }
}

__global__ void reads_its_load(const float* from, float* out) {
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared() + 128);
  arch::mbarrier_init(barrier(), 1);
  arch::fence_mbarrier_init();
  shared[0] = 3;
  arch::mbarrier_arrive_expect_bytes(barrier(), 64);
  arch::bulk_load(shared, from, 64, barrier());
  out[0] = shared[0];
  arch::mbarrier_wait(barrier(), 0);
  out[1] = shared[0];
}

TEST(a_destination_is_nan_until_its_load_is_over) {
  const with_options chosen("lazy");
  const buffer<float> from(std::vector<float>(16, 5.0f)), out(2);
  CHECK_EQUAL(report_of(reads_its_load, 1, from.data(), out.data()), "");
  CHECK(std::isnan(out.get()[0]));
  CHECK_EQUAL(out.get()[1], 5.0f);
}

// ---- tensor copies

struct corner {
  int c0 = 0, c1 = 0, offset = 1024;
};

__global__ void loads_box(const __grid_constant__ arch::tensor_map map, corner c) {
  arch::mbarrier_init(barrier(), 1);
  arch::fence_mbarrier_init();
  arch::mbarrier_arrive_expect_bytes(barrier(), 1024);
  arch::tma_load(arch::dynamic_shared() + c.offset, &map, barrier(), c.c0, c.c1);
  arch::mbarrier_wait(barrier(), 0);
}
constexpr int kBoxLine = __LINE__ - 3;

__global__ void stores_box(const __grid_constant__ arch::tensor_map map, corner c) {
  arch::tma_store(&map, arch::dynamic_shared() + c.offset, c.c0, c.c1);
  arch::bulk_commit();
  arch::bulk_wait<0>();
}

host::tensor_map_request matrix_of(const void* data, int rows) {
  return {.data = data,
          .kind = host::dtype::bfloat16,
          .rank = 2,
          .extent = {64, rows},
          .stride_bytes = {128},
          .box = {64, 8},
          .swizzle_bytes = 128};
}

TEST(tensor_copies_are_checked) {
  const buffer<uint8_t> tensor(16 * 128);
  const arch::tensor_map map = host::encode_tensor_map(matrix_of(tensor.data(), 16));
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_EQUAL(report_of(loads_box, 1, map, corner{-16, 12}), "");
    CHECK_EQUAL(report_of(stores_box, 1, map, corner{32, 12}), "");
    CHECK_CONTAINS(report_of(loads_box, 1, map, corner{.c0 = 3}),
                   "the innermost coordinate must be a multiple of 16 bytes, got 3, which is 6");
    CHECK_CONTAINS(report_of(stores_box, 1, map, corner{.c1 = -1}),
                   "the coordinates of a store must not be negative, got -1");
    CHECK_CONTAINS(report_of(loads_box, 1, map, corner{.offset = 1280}),
                   "tma_load by thread 0: offset 1280 is not aligned to 1024 bytes");
    CHECK_CONTAINS(report_of(stores_box, 1, map, corner{.offset = 3584}),
                   "1024 bytes at offset 3584 are outside of the block's 4096 bytes");
  }
}

TEST(a_map_larger_than_its_buffer) {
  const buffer<uint8_t> tensor(16 * 128);
  const arch::tensor_map map = host::encode_tensor_map(matrix_of(tensor.data(), 17));
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    CHECK_EQUAL(report_of(loads_box, 1, map, corner{.c1 = 8}), "");
    const std::string report = report_of(loads_box, 1, map, corner{.c1 = 9});
    CHECK_CONTAINS(report, "MEMORY at " + line_text(kBoxLine));
    CHECK_CONTAINS(report,
                   "tma_load by thread 0: 128 bytes past the end of a buffer of 2048 bytes");
    CHECK_CONTAINS(report_of(stores_box, 1, map, corner{.c1 = 10}), "tma_store by thread 0: ");
  }
}

__global__ void loads_one_dimension(const __grid_constant__ arch::tensor_map map) {
  arch::tma_prefetch(&map, 0);
}

TEST(coordinates_of_another_rank) {
  const buffer<uint8_t> tensor(16 * 128);
  const arch::tensor_map map = host::encode_tensor_map(matrix_of(tensor.data(), 16));
  CHECK_CONTAINS(report_of(loads_one_dimension, 1, map),
                 "tma_prefetch by thread 0: 1 coordinates for a tensor of 2 dimensions");
  CHECK_CONTAINS(report_of(loads_one_dimension, 1, arch::tensor_map{}),
                 "is no tensor map of encode_tensor_map");
}

__global__ void prefetches(const arch::tensor_map* map, int fencing_block) {
  if (arch::block_x() == fencing_block) arch::fence_tensor_map(map);
  arch::tma_prefetch(map, 0, 0);
}

__global__ void prefetches_what_is_fenced(const arch::tensor_map* map) {
  arch::fenced_tensor_map(nullptr);  // nothing
  arch::tma_prefetch(arch::fenced_tensor_map(map), 0, 0);
  arch::tma_prefetch(map, 0, 0);  // later uses need no fence
}

// Each block fences for itself.
TEST(map_in_global_memory_without_a_fence) {
  const buffer<uint8_t> tensor(16 * 128);
  arch::tensor_map* const map =
      host::tensor_map_on_device(host::encode_tensor_map(matrix_of(tensor.data(), 16)));
  run(prefetches, {.grid = {1}, .block = {1}}, map, 0);
  run(prefetches_what_is_fenced, {.grid = {2}, .block = {1}}, map);
  for (const int fencing_block : {-1, 0}) {
    CHECK_CONTAINS(report_of(prefetches, {.grid = {2}, .block = {1}}, map, fencing_block),
                   "the map is in global memory, and its block has not called fence_tensor_map");
  }
  delete map;
}

}  // namespace
