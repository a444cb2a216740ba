// arch/async_copy.cuh: groups of copies, zeros for what is not read, a ring of stages.
#include "harness.h"
#include "kittens/arch/async_copy.cuh"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

// Threads at odd places read nothing, and get zeros.
template <int Bytes, bool EvictFirst>
__global__ void copies(const uint8_t* in, uint8_t* out) {
  const int i = arch::thread_id();
  uint8_t* shared = arch::dynamic_shared();
  const bool reads = i % 2 == 0;
  const uint8_t* from = reads ? in + i * Bytes : nullptr;
  if constexpr (EvictFirst) {
    arch::cp_async_evict_first(shared + i * Bytes, from, reads);
  } else {
    arch::cp_async<Bytes>(shared + i * Bytes, from, reads);
  }
  arch::cp_async_commit();
  arch::cp_async_wait<0>();
  arch::sync_block();
  const int other = (i + 2) % arch::block_threads();
  for (int b = 0; b < Bytes; ++b) out[i * Bytes + b] = shared[other * Bytes + b];
}

template <int Bytes, bool EvictFirst = false>
void check_copies() {
  constexpr int kThreads = 64;
  std::vector<uint8_t> in(kThreads * Bytes);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 11 + 1);
  const buffer<uint8_t> from(in), to(in.size());
  run(copies<Bytes, EvictFirst>,
      {.grid = {1}, .block = {kThreads}, .shared_bytes = kThreads * Bytes}, from.data(), to.data());
  const std::vector<uint8_t> got = to.get();
  for (int i = 0; i < kThreads * Bytes; ++i) {
    const int at = (i + 2 * Bytes) % (kThreads * Bytes);
    CHECK_EQUAL(got[i], at / Bytes % 2 == 0 ? in[at] : 0);
  }
}

TEST(copies_of_4_8_and_16_bytes) {
  check_copies<4>();
  check_copies<8>();
  check_copies<16>();
  check_copies<16, /*EvictFirst=*/true>();
}

constexpr int kStages = 3;

// Sums `tiles` tiles of one uint4 per thread, with kStages − 1 copies under way.
__global__ void sums_tiles(const uint4* in, unsigned* out, int tiles) {
  const int i = arch::thread_id(), n = arch::block_threads();
  uint4* shared = reinterpret_cast<uint4*>(arch::dynamic_shared());
  const auto start = [&](int tile) {
    arch::cp_async<16>(shared + tile % kStages * n + i, in + tile * n + i, tile < tiles);
    arch::cp_async_commit();
  };
  for (int tile = 0; tile < kStages - 1; ++tile) start(tile);
  unsigned sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    arch::cp_async_wait<kStages - 2>();
    arch::sync_block();
    const uint4 v = shared[tile % kStages * n + (i + 1) % n];
    sum += v.x + 2 * v.y + 3 * v.z + 4 * v.w;
    start(tile + kStages - 1);  // into the stage that all have read before the last barrier
  }
  out[i] = sum;
}

TEST(a_ring_of_stages) {
  constexpr int kThreads = 64, kTiles = 10;
  std::vector<uint4> in;
  for (unsigned i = 0; i < (kTiles + kStages) * kThreads; ++i)
    in.push_back({i, 3 * i, i ^ 5, i / 7});
  const buffer<uint4> from(in);
  const buffer<unsigned> to(kThreads);
  run(sums_tiles, {.grid = {1}, .block = {kThreads}, .shared_bytes = kStages * kThreads * 16},
      from.data(), to.data(), kTiles);
  const std::vector<unsigned> got = to.get();
  for (int i = 0; i < kThreads; ++i) {
    unsigned want = 0;
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 v = in[tile * kThreads + (i + 1) % kThreads];
      want += v.x + 2 * v.y + 3 * v.z + 4 * v.w;
    }
    CHECK_EQUAL(got[i], want);
  }
}

}  // namespace
