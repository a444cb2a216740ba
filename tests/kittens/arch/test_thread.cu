// arch/thread.cuh and arch/shared.cuh.
#include "harness.h"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kFields = 10;

__global__ void places(int* out) {
  const int block =
      (arch::block_z() * arch::grid_y() + arch::block_y()) * arch::grid_x() + arch::block_x();
  int* mine = out + (block * arch::block_threads() + arch::thread_id()) * kFields;
  const int fields[kFields] = {
      arch::thread_id(), arch::lane_id(), arch::warp_id(), arch::block_threads(), arch::block_x(),
      arch::block_y(),   arch::block_z(), arch::grid_x(),  arch::grid_y(),        arch::grid_z()};
  for (int i = 0; i < kFields; ++i) mine[i] = fields[i];
}

TEST(each_thread_knows_its_place) {
  constexpr int kX = 3, kY = 2, kZ = 2, kThreads = 96;
  buffer<int> out(kX * kY * kZ * kThreads * kFields);
  run(places, {.grid = {kX, kY, kZ}, .block = {kThreads}}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < kX * kY * kZ * kThreads; ++i) {
    const int block = i / kThreads, thread = i % kThreads;
    const int want[kFields] = {thread,          thread % 32,     thread / 32, kThreads, block % kX,
                               block / kX % kY, block / kX / kY, kX,          kY,       kZ};
    for (int f = 0; f < kFields; ++f) CHECK_EQUAL(got[i * kFields + f], want[f]);
  }
}

__global__ void shared_addresses(uint64_t* out) {
  uint8_t* base = arch::dynamic_shared();
  out[0] = reinterpret_cast<uint64_t>(base) % 1024;
  out[1] = arch::shared_address(base) % 1024;
  out[2] = arch::shared_address(base + 100) - arch::shared_address(base);
}

TEST(shared_memory_is_aligned_to_1024_bytes) {
  buffer<uint64_t> out(3);
  run(shared_addresses, {.grid = {2}, .block = {32}, .shared_bytes = 2048}, out.data());
  CHECK_EQUAL(out.get()[0], 0u);
  CHECK_EQUAL(out.get()[1], 0u);
  CHECK_EQUAL(out.get()[2], 100u);
}

__global__ void fills_shared(int* out, int words) {
  int* shared = reinterpret_cast<int*>(arch::dynamic_shared());
  for (int i = 0; i < words; ++i) shared[i] = i * 7 + arch::block_x();
  int errors = 0;
  for (int i = 0; i < words; ++i) errors += shared[i] != i * 7 + arch::block_x();
  out[arch::block_x()] = errors;
}

TEST(shared_memory_has_the_size_asked_for) {
  for (const int bytes : {4, 1000, 48 * 1024, 100 * 1024, 227 * 1024}) {
    buffer<int> out(6);
    run(fills_shared, {.grid = {6}, .block = {1}, .shared_bytes = bytes}, out.data(), bytes / 4);
    for (const int errors : out.get()) CHECK_EQUAL(errors, 0);
  }
}

}  // namespace
