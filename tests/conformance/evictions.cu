// Copies whose lines the L2 evicts first: of threads, and of boxes of 1 to 5 dimensions. They bring
// what the same copies without a policy do.
#include "kittens/arch/arch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/tensor_map.cuh"
#include "record.h"
#include "tensor_copies.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

// Threads at odd places read nothing, and get zeros.
template <bool EvictFirst>
__global__ void copies(const uint4* in, uint4* out) {
  const int i = arch::thread_id();
  auto* const shared = reinterpret_cast<uint4*>(arch::dynamic_shared());
  if constexpr (EvictFirst) {
    arch::cp_async_evict_first(shared + i, in + i, i % 2 == 0);
  } else {
    arch::cp_async<16>(shared + i, in + i, i % 2 == 0);
  }
  arch::cp_async_commit();
  arch::cp_async_wait<0>();
  arch::sync_block();
  out[i] = shared[i ^ 1];
}

template <bool EvictFirst>
std::vector<unsigned> copied() {
  std::vector<unsigned> numbers(4 * kThreads);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0x9e3779b9u * unsigned(i + 1);
  const buffer<unsigned> in(numbers), out(numbers.size());
  run(copies<EvictFirst>, {.grid = {1}, .block = {kThreads}, .shared_bytes = 16 * kThreads},
      reinterpret_cast<const uint4*>(in.data()), reinterpret_cast<uint4*>(out.data()));
  return out.get();
}

TEST(asynchronous_copies) {
  const std::vector<unsigned> got = copied<true>();
  CHECK(got == copied<false>());
  record("cp_async_evict_first", got);
}

// All bytes of shared memory, after the box of a tensor of random bytes has been loaded.
template <bool EvictFirst>
std::vector<uint8_t> loaded(const box_case& b) {
  const buffer<uint8_t> in(b.random_bytes(b.tensor_bytes())), out(b.shared_bytes());
  const arch::tensor_map map = host::encode_tensor_map(b.request(in.data()));
  host::dispatch<1, 2, 3, 4, 5>("rank", b.rank, [&]<int Rank> {
    run(loads<Rank, EvictFirst>, launch_of(b), map, corner_of(b), b.box_bytes(), out.data(),
        b.shared_bytes());
  });
  return out.get();
}

TEST(tensor_copies) {
  const box_case boxes[] = {
      {.rank = 1, .extent = {100}, .box = {32}, .corner = {8}},
      {.rank = 2, .extent = {64, 20}, .box = {32, 8}, .corner = {48, 17}},
      {.rank = 3, .extent = {40, 9, 5}, .box = {24, 4, 2}, .corner = {8, 3, 1}},
      {.rank = 4, .extent = {32, 6, 5, 3}, .box = {16, 3, 2, 2}, .corner = {8, 1, 2}},
      {.rank = 5, .extent = {24, 4, 3, 5, 3}, .box = {16, 2, 3, 2, 2}, .corner = {8, 1, 0, 2, 1}},
  };
  for (const box_case& b : boxes) {
    const std::vector<uint8_t> got = loaded<true>(b);
    CHECK(got == loaded<false>(b));
    record("tma_load_evict_first.rank_" + to_text(b.rank), got);
  }
}

}  // namespace
