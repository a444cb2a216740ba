// arch/memory.cuh: every access, on each size of vector.
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
// out, kept in the L2, in the last.
template <class V>
__global__ void copies(const V* in, V* out) {
  const int i = arch::thread_id(), n = arch::block_threads();
  V* shared = reinterpret_cast<V*>(arch::dynamic_shared());
  arch::prefetch_l2(in);
  arch::store_shared(shared + i, arch::load_global(in + i));
  arch::sync_block();
  arch::store_global(out + i, arch::load_shared(shared + (i + 1) % n));
  arch::store_global_streaming(out + n + i, arch::load_global_streaming(in + i));
  arch::store_global(out + 2 * n + i, arch::load_global_kept(in + i));
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

}  // namespace
