// types/shared_allocator.cuh: pieces follow each other, aligned, and do not overlap.
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

// Where the pieces begin, as bytes from the first; every thread must find the same.
template <int Alignment>
__global__ void allocate_some(int* offsets) {
  shared_allocator<Alignment> al((int*)arch::dynamic_shared());
  const auto offset_of = [](const void* p) {
    return static_cast<int>(static_cast<const uint8_t*>(p) - arch::dynamic_shared());
  };
  int& number = al.template allocate<int>();
  uint8_t (&bytes)[5] = al.template allocate<uint8_t, 5>();
  sv<bf16, 24>& vector = al.template allocate<sv<bf16, 24>>();
  st_bf<16, 32>& tile = al.template allocate<st_bf<16, 32>>();
  st_bf<16, 64>(&tiles)[2] = al.template allocate<st_bf<16, 64>, 2>();
  float (&table)[3][4] = al.template allocate<float, 3, 4>();
  double& last = al.template allocate<double>();
  const void* starts[] = {&number,   bytes, &vector,      &tile, tiles,
                          &tiles[1], table, &table[2][1], &last};
  for (int i = 0; i < 9; ++i) offsets[arch::thread_id() * 9 + i] = offset_of(starts[i]);
}

template <int Alignment>
void check_offsets(const std::vector<int>& want) {
  const buffer<int> offsets(64 * 9);
  run(allocate_some<Alignment>, {.grid = {1}, .block = {64}, .shared_bytes = 16384},
      offsets.data());
  const std::vector<int> got = offsets.get();
  for (int i = 0; i < 64 * 9; ++i) CHECK_EQUAL(got[i], want[i % 9]);
}

TEST(pieces_have_the_alignment_of_their_type) {
  check_offsets<16>({0, 16, 32, 512, 2048, 4096, 6144, 6144 + 36, 6192});
}

TEST(tma_pieces_begin_at_multiples_of_1024_bytes) {
  check_offsets<1024>({0, 1024, 2048, 3072, 4096, 6144, 8192, 8192 + 36, 9216});
}

TEST(pieces_without_gaps_on_request) {
  check_offsets<1>({0, 4, 16, 512, 2048, 4096, 6144, 6144 + 36, 6192});
}

// The spelling of kernels, and a type that the allocator cannot see inside.
__global__ void spelled(int* sum) {
  shared_allocator al((int*)arch::dynamic_shared());
  tma_allocator twin(&al.allocate<alignment_dummy>());
  int (&numbers)[kWarp] = twin.allocate<int, kWarp>();
  numbers[arch::lane_id()] = arch::lane_id();
  arch::sync_warp();
  if (arch::lane_id() == 0) {
    *sum = 0;
    for (const int n : numbers) *sum += n;
  }
}

TEST(the_alignment_may_be_left_out) {
  const buffer<int> sum(1);
  run(spelled, {.grid = {1}, .block = {kWarp}, .shared_bytes = 2048}, sum.data());
  CHECK_EQUAL(sum.get()[0], 31 * 16);
  static_assert(alignof(alignment_dummy) == 1024);
}

}  // namespace
