// arch/atomic.cuh: sums and extremes over a grid, locks, and messages between threads.
#include "harness.h"
#include "kittens/arch/atomic.cuh"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kBlocks = 13, kThreads = 96, kAll = kBlocks * kThreads;

KITTENS_DEVICE int grid_thread() {
  return arch::block_x() * arch::block_threads() + arch::thread_id();
}

template <class T>
__global__ void adds(T* sum, T* before) {
  before[grid_thread()] = arch::atomic_add(sum, static_cast<T>(3));
}

template <class T>
void check_adds() {
  const buffer<T> sum(std::vector<T>{5}), before(kAll);
  run(adds<T>, {.grid = {kBlocks}, .block = {kThreads}}, sum.data(), before.data());
  CHECK_EQUAL(sum.get()[0], static_cast<T>(5 + 3 * kAll));
  // What each found there: 5, 8, 11 …, each once.
  std::vector<int> seen(kAll);
  for (const T b : before.get()) ++seen.at(static_cast<size_t>((b - 5) / 3));
  for (const int times : seen) CHECK_EQUAL(times, 1);
}

TEST(atomic_add_of_each_type) {
  check_adds<float>();
  check_adds<int>();
  check_adds<unsigned>();
  check_adds<uint64_t>();
}

__global__ void extremes(int* out, unsigned* out_unsigned) {
  const int i = grid_thread();
  arch::atomic_max(out, i * (i % 2 == 0 ? 1 : -1));
  arch::atomic_min(out + 1, i * (i % 2 == 0 ? 1 : -1));
  arch::atomic_max(out_unsigned, 0x80000000u + i);
  arch::atomic_min(out_unsigned + 1, 0x80000000u + i);
}

TEST(atomic_max_and_min) {
  const buffer<int> out(std::vector<int>{0, 0});
  const buffer<unsigned> out_unsigned(std::vector<unsigned>{0, 0xffffffffu});
  run(extremes, {.grid = {kBlocks}, .block = {kThreads}}, out.data(), out_unsigned.data());
  const int largest_even = (kAll - 1) / 2 * 2, largest_odd = (kAll - 2) / 2 * 2 + 1;
  CHECK_EQUAL(out.get()[0], largest_even);
  CHECK_EQUAL(out.get()[1], -largest_odd);
  CHECK_EQUAL(out_unsigned.get()[0], 0x80000000u + kAll - 1);
  CHECK_EQUAL(out_unsigned.get()[1], 0x80000000u);
}

template <class T>
__global__ void exchanges(T* out) {
  out[1] = arch::atomic_exchange(out, static_cast<T>(7));
  out[2] = arch::atomic_cas(out, static_cast<T>(6), static_cast<T>(8));  // not equal: stays
  out[3] = arch::atomic_cas(out, static_cast<T>(7), static_cast<T>(9));
}

template <class T>
void check_exchanges() {
  const buffer<T> out(std::vector<T>{1, 0, 0, 0});
  run(exchanges<T>, {.grid = {1}, .block = {1}}, out.data());
  const std::vector<T> got = out.get();
  CHECK_EQUAL(got[0], static_cast<T>(9));
  CHECK_EQUAL(got[1], static_cast<T>(1));
  CHECK_EQUAL(got[2], static_cast<T>(7));
  CHECK_EQUAL(got[3], static_cast<T>(7));
}

TEST(exchange_and_compare_of_each_type) {
  check_exchanges<int>();
  check_exchanges<unsigned>();
  check_exchanges<uint64_t>();
}

// One thread of each block, in turn, adds to a plain variable.
__global__ void locks(int* lock, int* count) {
  if (arch::thread_id() != 0) return;
  while (arch::atomic_cas(lock, 0, 1) != 0) {
  }
  arch::fence_device();
  *static_cast<volatile int*>(count) = *static_cast<volatile int*>(count) + 1;
  arch::fence_device();
  arch::store_release(lock, 0);
}

TEST(a_lock_between_blocks) {
  const buffer<int> lock(std::vector<int>{0}), count(std::vector<int>{0});
  run(locks, {.grid = {kBlocks}, .block = {32}}, lock.data(), count.data());
  CHECK_EQUAL(count.get()[0], kBlocks);
}

// Warp 1 waits for a message of warp 0, in shared memory.
__global__ void sends(int* out) {
  int* shared = reinterpret_cast<int*>(arch::dynamic_shared());
  int* flag = shared + 32;
  if (arch::thread_id() == 0) *flag = 0;
  arch::sync_block();
  if (arch::warp_id() == 0) {
    shared[arch::lane_id()] = arch::lane_id() * arch::lane_id();
    arch::sync_warp();
    if (arch::lane_id() == 0) arch::store_release(flag, 1);
  } else {
    while (arch::load_acquire(flag) == 0) {
    }
    out[arch::lane_id()] = shared[31 - arch::lane_id()];
  }
}

TEST(a_message_between_warps) {
  const buffer<int> out(32);
  run(sends, {.grid = {1}, .block = {64}, .shared_bytes = 256}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < 32; ++i) CHECK_EQUAL(got[i], (31 - i) * (31 - i));
}

// The last block to come sums what all have written, as split reductions do.
__global__ void last_block_sums(uint64_t* parts, unsigned* arrived, uint64_t* sum) {
  if (arch::thread_id() == 0) parts[arch::block_x()] = arch::block_x() + 1;
  arch::fence_device();
  arch::sync_block();
  if (arch::thread_id() != 0) return;
  if (arch::atomic_add(arrived, 1u) + 1 != static_cast<unsigned>(arch::grid_x())) return;
  arch::fence_device();
  uint64_t total = 0;
  for (int i = 0; i < arch::grid_x(); ++i) total += arch::load_acquire(parts + i);
  *sum = total;
}

TEST(the_last_block_sums) {
  const buffer<uint64_t> parts(kBlocks), sum(1);
  const buffer<unsigned> arrived(std::vector<unsigned>{0});
  run(last_block_sums, {.grid = {kBlocks}, .block = {64}}, parts.data(), arrived.data(),
      sum.data());
  CHECK_EQUAL(sum.get()[0], static_cast<uint64_t>(kBlocks * (kBlocks + 1) / 2));
}

}  // namespace
