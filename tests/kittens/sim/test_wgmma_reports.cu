// Planted mistakes with the tensor cores and with registers, and what the simulator says.
#include <cmath>

#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using arch::major;
using testing::buffer;
using testing::report_of;
using testing::run;
using testing::with_options;

namespace {

constexpr int kWarpgroup = 128;
constexpr int kSharedBytes = 8192;
constexpr host::launch_config kLaunch = {
    .grid = {1}, .block = {kWarpgroup}, .shared_bytes = kSharedBytes};

template <class... P>
std::string report_of_product(void (*kernel)(P...), const std::type_identity_t<P>&... arguments) {
  return report_of(kernel, kLaunch, arguments...);
}

// a of 64 rows, b of up to 64 columns, both K-major, in lines of 128 bytes, all ones.
constexpr int kOperandBytes = 64 * 128 / 2;

uint64_t encode(int offset) { return arch::detail::encode_matrix(1024 + offset, 16, 512, 64); }

KITTENS_DEVICE uint64_t operand(int offset = 0) {
  return arch::matrix_descriptor(arch::shared_address(arch::dynamic_shared()) + offset, 16, 512,
                                 64);
}

KITTENS_DEVICE void fill(float value) {
  auto* const shared = reinterpret_cast<__nv_bfloat16*>(arch::dynamic_shared());
  for (int i = arch::thread_id(); i < kSharedBytes / 2; i += arch::block_threads()) {
    shared[i] = __float2bfloat16_rn(value);
  }
  arch::fence_async_proxy();
  arch::sync_block();
}

template <int N>
KITTENS_DEVICE void ask(float (&d)[N / 2], bool accumulate = false, KITTENS_CALL_SITE) {
  arch::wgmma<__nv_bfloat16, N>(d, operand(), operand(kOperandBytes), accumulate, site);
}

// ---- fences and waits

__global__ void no_fence(int fences) {
  float d[8];
  if (fences == 1) arch::wgmma_fence();
  ask<16>(d);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
  ask<16>(d, true);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}
constexpr int kNoFenceLine = __LINE__ - 7;

TEST(no_fence_before_a_group) {
  const std::string first = report_of_product(no_fence, 0), second = report_of_product(no_fence, 1);
  const auto line = [](int after) { return std::to_string(kNoFenceLine + after); };
  CHECK_CONTAINS(first, "WGMMA at test_wgmma_reports.cu:" + line(0) + ": thread ");
  CHECK_CONTAINS(first, "asks for a product without wgmma_fence since its registers were last");
  CHECK_CONTAINS(second, "WGMMA at test_wgmma_reports.cu:" + line(3) + ": thread ");
}

__global__ void no_fence_after_a_commit() {
  float first[8], second[8];
  arch::wgmma_fence();
  ask<16>(first);
  arch::wgmma_commit();
  ask<16>(second);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(no_fence_between_groups) {
  CHECK_CONTAINS(report_of_product(no_fence_after_a_commit), "without wgmma_fence");
}

__global__ void reads_too_early(float* out) {
  fill(1);
  float d[8];
  arch::wgmma_fence();
  ask<16>(d);
  arch::wgmma_commit();
  const float early = d[0] + 1;
  arch::wgmma_wait<0>();
  out[arch::thread_id()] = early;
  out[kWarpgroup + arch::thread_id()] = d[0] + 1;
}

TEST(an_accumulator_read_before_the_wait_is_nan) {
  for (const char* policy : {"eager", "lazy", "random:1"}) {
    const with_options chosen(policy);
    const buffer<float> out(2 * kWarpgroup);
    run(reads_too_early, kLaunch, out.data());
    CHECK(std::isnan(out.get()[5]));
    CHECK_EQUAL(out.get()[kWarpgroup + 5], 17.0f);
  }
}

__global__ void writes_too_early(bool quietly) {
  fill(1);
  float d[8];
  arch::wgmma_fence();
  ask<16>(d);
  arch::wgmma_commit();
  if (arch::thread_id() == 77) d[3] = quietly ? d[3] * 2 : 0;
  arch::wgmma_wait<0>();
}

TEST(an_accumulator_written_before_the_wait) {
  for (const char* policy : {"eager", "lazy", "random:1"}) {
    const with_options chosen(policy);
    for (const bool quietly : {false, true}) {
      CHECK_CONTAINS(report_of_product(writes_too_early, quietly),
                     "thread 77 wrote its accumulator 3 while the product of width 16 at "
                     "test_wgmma_reports.cu:");
    }
  }
}

__global__ void two_groups(float* out) {
  fill(1);
  float first[8], second[8];
  arch::wgmma_fence();
  ask<16>(first);
  arch::wgmma_commit();
  arch::wgmma_fence();
  ask<16>(second);
  arch::wgmma_commit();
  arch::wgmma_wait<1>();
  out[arch::thread_id()] = first[0];
  out[kWarpgroup + arch::thread_id()] = second[0];
  arch::wgmma_wait<0>();
}

TEST(a_wait_gives_back_its_groups_alone) {
  for (const char* policy : {"eager", "lazy", "random:1"}) {
    const with_options chosen(policy);
    const buffer<float> out(2 * kWarpgroup);
    run(two_groups, kLaunch, out.data());
    CHECK_EQUAL(out.get()[9], 16.0f);
    CHECK(std::isnan(out.get()[kWarpgroup + 9]));
  }
}

__global__ void overwrites_an_operand(float* out) {
  fill(1);
  float d[8];
  arch::wgmma_fence();
  ask<16>(d);
  arch::wgmma_commit();
  fill(0);
  arch::wgmma_wait<0>();
  out[arch::thread_id()] = d[0];
}

TEST(an_operand_overwritten_before_the_wait) {
  const buffer<float> out(kWarpgroup);
  const with_options chosen("lazy");
  run(overwrites_an_operand, kLaunch, out.data());
  CHECK_EQUAL(out.get()[0], 0.0f);
}

__global__ void never_waits(bool commits) {
  float d[8];
  arch::wgmma_fence();
  ask<16>(d);
  if (commits) arch::wgmma_commit();
}

TEST(a_thread_exits_too_early) {
  CHECK_CONTAINS(report_of_product(never_waits, false),
                 "exits with 1 products that it has not committed (wgmma_commit)");
  CHECK_CONTAINS(report_of_product(never_waits, true),
                 "exits without waiting for this product (wgmma_wait)");
}

// ---- who asks for what

__global__ void one_warp_is_missing() {
  float d[8];
  arch::wgmma_fence();
  if (arch::warp_id() != 2) ask<16>(d);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(a_warp_that_does_not_ask) {
  const std::string report = report_of_product(one_warp_is_missing);
  CHECK_CONTAINS(report, "DEADLOCK");
  CHECK_CONTAINS(report, "for wgmma of warpgroup 0: 96 of 128 threads have asked for the product");
}

__global__ void lanes_disagree(uint64_t a, uint64_t b, int what) {
  const bool other = arch::thread_id() == 40;
  float d[8] = {};
  arch::wgmma_fence();
  arch::wgmma<__nv_bfloat16, 16>(d, what == 0 && other ? a + 2 : a, what == 1 && other ? b + 2 : b,
                                 what == 2 && other);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(threads_that_disagree) {
  const auto chosen = testing::without_race_mode();
  for (int what = 0; what < 3; ++what) {
    const std::string report =
        report_of_product(lanes_disagree, encode(0), encode(kOperandBytes), what);
    CHECK_CONTAINS(report, "DIVERGENCE at ");
    CHECK_CONTAINS(report, "thread 40 of warpgroup 0 asks for m64n16k16 of bf16, a K-major at 0x");
    CHECK_CONTAINS(report, "but thread ");
  }
  CHECK_EQUAL(report_of_product(lanes_disagree, encode(0), encode(kOperandBytes), 3), "");
}

__global__ void one_thread_does_not_wait() {
  float d[8];
  arch::wgmma_fence();
  ask<16>(d);
  arch::wgmma_commit();
  if (arch::thread_id() != 3) arch::wgmma_wait<0>();
  arch::wgmma_fence();
  ask<16>(d, true);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(threads_that_disagree_on_a_wait) {
  CHECK_CONTAINS(report_of_product(one_thread_does_not_wait),
                 "of a warpgroup disagree: the accumulators of one of them");
}

__global__ void two_shapes() {
  float d[16];
  arch::wgmma_fence();
  ask<32>(d);
  ask<16>(reinterpret_cast<float (&)[8]>(d[4]));
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(accumulators_of_two_shapes) {
  CHECK_CONTAINS(report_of_product(two_shapes),
                 "the accumulators of this product of width 16 are in part those of the product "
                 "of width 32");
}

__global__ void asks() {
  float d[8];
  arch::wgmma_fence();
  ask<16>(d);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(an_incomplete_warpgroup) {
  CHECK_CONTAINS(report_of(asks, {.grid = {1}, .block = {192}, .shared_bytes = kSharedBytes}),
                 "warpgroup 1 has 64 threads only: a product needs 128");
}

// ---- descriptors

template <major B>
__global__ void asks_for(uint64_t b) {
  float d[64];
  arch::wgmma_fence();
  arch::wgmma<__nv_bfloat16, 128, major::k, B>(d, operand(), b, false);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
}

TEST(operands_out_of_shared_memory) {
  const auto chosen = testing::without_race_mode();
  const std::string report = report_of_product(asks_for<major::k>, encode(512));
  CHECK_CONTAINS(report, "WGMMA at ");
  CHECK_CONTAINS(report, "operand b (K-major, descriptor 0x");
  CHECK_CONTAINS(report, "it reaches from offset 512 to 8704, outside of the block's 8192 bytes");
  CHECK_CONTAINS(report_of_product(asks_for<major::k>, encode(-1024)), "from offset -1024 to 7168");
  CHECK_EQUAL(report_of_product(asks_for<major::k>, encode(0)), "");
  // Plain: 16 × 128 in cores, 2048 bytes to the next 8 of K.
  const uint64_t plain = arch::detail::encode_matrix(1024 + 4096, 2048, 128, 0);
  CHECK_EQUAL(report_of_product(asks_for<major::k>, plain), "");
  CHECK_EQUAL(report_of_product(asks_for<major::mn>, plain), "");
  CHECK_CONTAINS(report_of_product(asks_for<major::mn>, plain + 1), "from offset 4112 to 8208");
  // MN-major: two chunks of 64 columns, 16 lines of 128 bytes each.
  const uint64_t chunks = arch::detail::encode_matrix(1024, 6144, 1024, 128);
  CHECK_EQUAL(report_of_product(asks_for<major::mn>, chunks), "");
  CHECK_CONTAINS(report_of_product(asks_for<major::mn>, chunks + 64), "from offset 1024 to 9216");
}

TEST(operands_out_of_place) {
  CHECK_CONTAINS(report_of_product(asks_for<major::k>, encode(128)),
                 "offset 128 of shared memory is not a multiple of 512, up to bytes within a line");
  CHECK_CONTAINS(report_of_product(asks_for<major::k>, encode(48)),
                 "32 bytes from byte 48 on leave a line of 64");
  CHECK_CONTAINS(report_of_product(asks_for<major::mn>, encode(16)),
                 "64 bytes from byte 16 on leave a line of 64");
  CHECK_CONTAINS(report_of_product(asks_for<major::k>, encode(0) | 3ull << 49), "base offset 3");
}

__global__ void describes(int address, int leading, int stride, int swizzle) {
  arch::matrix_descriptor(address, leading, stride, swizzle);
}

TEST(arguments_of_a_descriptor) {
  CHECK_CONTAINS(report_of_product(describes, 1032, 16, 1024, 128), "0x408 is not aligned to 16");
  CHECK_CONTAINS(report_of_product(describes, 1024, 8, 1024, 128), "got 8 and 1024");
  CHECK_CONTAINS(report_of_product(describes, 1024, 16, 1 << 18, 128), "got 16 and 262144");
  CHECK_CONTAINS(report_of_product(describes, 1024, 16, 1024, 96), "0, 32, 64 or 128, got 96");
}

// ---- products and matrices of a warp

__global__ void loads_matrix(int offset) {
  uint32_t d[2];
  arch::load_matrix<false>(d, arch::dynamic_shared() + offset + arch::lane_id() * 16);
}

__global__ void stores_matrix(int offset) {
  const uint32_t s[2] = {};
  arch::store_matrix<false>(arch::dynamic_shared() + offset + arch::lane_id() * 16, s);
}

TEST(rows_of_a_matrix) {
  const auto chosen = testing::without_race_mode();
  CHECK_EQUAL(report_of(loads_matrix, 32, 4096 - 256), "");
  CHECK_CONTAINS(report_of(loads_matrix, 32, 4096 - 240), "load_matrix by thread 15: 16 bytes at");
  CHECK_CONTAINS(report_of(loads_matrix, 32, 8), " is not aligned to 16 bytes");
  CHECK_EQUAL(report_of(stores_matrix, 32, 4096 - 256), "");
  CHECK_CONTAINS(report_of(stores_matrix, 32, 4096 - 240), "store_matrix by thread 15: 16 bytes");
  CHECK_CONTAINS(report_of(stores_matrix, 32, 4), " is not aligned to 16 bytes");
}

__global__ void half_a_warp_multiplies() {
  float d[4] = {};
  const uint32_t a[4] = {}, b[2] = {};
  if (arch::lane_id() < 16) arch::mma_m16n8k16<__half>(d, a, b, d);
}

TEST(a_product_needs_the_whole_warp) {
  const std::string report = report_of(half_a_warp_multiplies, 32);
  CHECK_CONTAINS(report, "DIVERGENCE");
  CHECK_CONTAINS(report, "mma_m16n8k16<half>");
}

// ---- registers

__global__ void nobody_gives() {
  if (arch::warp_id() < 4) {
    arch::lower_registers<152>();
  } else {
    arch::raise_registers<184>();
  }
}

TEST(registers_that_nobody_gives) {
  const std::string report = report_of(nobody_gives, 384);
  CHECK_CONTAINS(report, "DEADLOCK");
  CHECK_CONTAINS(report, "for raise_registers<184> of warp ");
  CHECK_CONTAINS(report, "it wants 512 registers, 0 of the block's 64512 are free");
}

__global__ void raises_to_fewer() { arch::raise_registers<24>(); }
__global__ void lowers_to_more() { arch::lower_registers<240>(); }
__global__ void warps_disagree() {
  if (arch::warp_id() < 3) {
    arch::lower_registers<40>();
  } else {
    arch::lower_registers<32>();
  }
}

TEST(numbers_of_registers) {
  CHECK_CONTAINS(report_of(raises_to_fewer, 384), "raise_registers<24> by warp");
  CHECK_CONTAINS(report_of(lowers_to_more, 384), "which has 168 per thread");
  CHECK_CONTAINS(report_of(warps_disagree, 128), " of its warpgroup asked for ");
}

}  // namespace
