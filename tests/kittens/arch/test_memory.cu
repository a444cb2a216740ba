// arch/memory.cuh: every access, on each size of vector, with and without its predicate.
#include <cuda_bf16.h>

#include "harness.h"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

// in → shared → the neighbour → out: plain in the first third of out, streaming in the second; in →
// out, evicted last, in the last.
template <class V>
__global__ void copies(const V* in, V* out) {
  const int i = arch::thread_id(), n = arch::block_threads();
  V* shared = reinterpret_cast<V*>(arch::dynamic_shared());
  arch::prefetch_l2(in);
  arch::store_shared(shared + i, arch::load_global(in + i));
  arch::sync_block();
  arch::store_global(out + i, arch::load_shared(shared + (i + 1) % n));
  arch::store_global_streaming(out + n + i, arch::load_global_streaming(in + i));
  arch::store_global(out + 2 * n + i, arch::load_global_evict_last(in + i));
}

template <class V>
void check_copies() {
  constexpr int kThreads = 64;
  std::vector<uint8_t> in(kThreads * sizeof(V));
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 37 + i / 256);
  const buffer<uint8_t> from(in), to(3 * in.size());
  run(copies<V>,
      {.grid = {1}, .block = {kThreads}, .shared_bytes = static_cast<int64_t>(in.size())},
      reinterpret_cast<const V*>(from.data()), reinterpret_cast<V*>(to.data()));
  const std::vector<uint8_t> got = to.get();
  for (size_t i = 0; i < in.size(); ++i) {
    CHECK_EQUAL(got[i], in[(i + sizeof(V)) % in.size()]);
    CHECK_EQUAL(got[in.size() + i], in[i]);
    CHECK_EQUAL(got[2 * in.size() + i], in[i]);
  }
}

// Every other thread is not to: in its place, out keeps what it holds in the first and the last
// third, and gets the zero that was not loaded in the second. An address that is not used may be
// null.
template <class V>
__global__ void copies_by_every_other(const V* in, V* out) {
  const int i = arch::thread_id(), n = arch::block_threads();
  const bool even = i % 2 == 0;
  arch::store_global(out + i, arch::load_global(in + i), even);
  arch::store_global(out + n + i, arch::load_global_evict_last(even ? in + i : nullptr, even));
  arch::store_global(even ? out + 2 * n + i : nullptr, arch::load_global(in + i), even);
}

// The same where the compiler knows that nothing is to be done.
template <class V>
__global__ void copies_nothing(V* out) {
  arch::store_global(out, arch::load_global_evict_last(static_cast<const V*>(nullptr), false));
  arch::store_global(out + 1, arch::load_global(out), false);
  arch::store_global(static_cast<V*>(nullptr), arch::load_global(out), false);
}

template <class V>
void check_predicates() {
  constexpr int kThreads = 64;
  constexpr size_t kBytes = kThreads * sizeof(V);
  std::vector<uint8_t> in(kBytes);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 37 + i / 256 + 1);
  const buffer<uint8_t> from(in), to(3 * kBytes), nothing(2 * sizeof(V));
  const std::vector<uint8_t> before = to.get(), kept = nothing.get();
  run(copies_by_every_other<V>, {.grid = {1}, .block = {kThreads}},
      reinterpret_cast<const V*>(from.data()), reinterpret_cast<V*>(to.data()));
  const std::vector<uint8_t> got = to.get();
  for (size_t i = 0; i < kBytes; ++i) {
    const bool even = i / sizeof(V) % 2 == 0;
    CHECK_EQUAL(got[i], even ? in[i] : before[i]);
    CHECK_EQUAL(got[kBytes + i], even ? in[i] : 0);
    CHECK_EQUAL(got[2 * kBytes + i], even ? in[i] : before[2 * kBytes + i]);
  }
  run(copies_nothing<V>, {.grid = {1}, .block = {1}}, reinterpret_cast<V*>(nothing.data()));
  for (size_t i = 0; i < sizeof(V); ++i) {
    CHECK_EQUAL(nothing.get()[i], 0);
    CHECK_EQUAL(nothing.get()[sizeof(V) + i], kept[sizeof(V) + i]);
  }
}

TEST(copies_of_1_byte) { check_copies<uint8_t>(); }
TEST(copies_of_2_bytes) {
  check_copies<uint16_t>();
  check_copies<__nv_bfloat16>();
}
TEST(copies_of_4_bytes) {
  check_copies<float>();
  check_copies<__nv_bfloat162>();
}
TEST(copies_of_8_bytes) {
  check_copies<uint2>();
  check_copies<double>();
}
TEST(copies_of_16_bytes) {
  check_copies<uint4>();
  check_copies<float4>();
}

TEST(predicates_of_1_byte) { check_predicates<uint8_t>(); }
TEST(predicates_of_2_bytes) {
  check_predicates<uint16_t>();
  check_predicates<__nv_bfloat16>();
}
TEST(predicates_of_4_bytes) { check_predicates<float>(); }
TEST(predicates_of_8_bytes) { check_predicates<uint2>(); }
TEST(predicates_of_16_bytes) { check_predicates<float4>(); }

}  // namespace
