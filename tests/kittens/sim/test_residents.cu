// Blocks that wait for each other in global memory: all of a wave run at one time, under every
// policy, on one core and on several.
#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kOptions[] = {"eager,threads=1",
                                    "lazy,threads=1",
                                    "random:1,threads=1",
                                    "random:2,threads=1",
                                    "eager",
                                    "lazy",
                                    "random:3"};

// A barrier of the whole grid, as persistent kernels have one: the value that `count` has then
// reached.
KITTENS_DEVICE void sync_grid(unsigned* count, unsigned reached) {
  arch::fence_device();
  arch::sync_block();
  if (arch::thread_id() == 0) {
    arch::atomic_add(count, 1u);
    while (arch::load_acquire(count) < reached) {
    }
  }
  arch::sync_block();
}

// Each block takes, again and again, what the next one has left.
__global__ void goes_round(unsigned* count, int* slots, int* out, int rounds) {
  const int n = arch::grid_x(), block = arch::block_x(), threads = arch::block_threads();
  int value = 1000 * block + arch::thread_id();
  for (int round = 0; round < rounds; ++round) {
    arch::store_global(&slots[(round % 2 * n + block) * threads + arch::thread_id()], value);
    sync_grid(count, n * (round + 1));
    value =
        arch::load_global(&slots[(round % 2 * n + (block + 1) % n) * threads + arch::thread_id()]);
  }
  out[block * threads + arch::thread_id()] = value;
}

void check_rounds(int blocks, int64_t shared_bytes) {
  constexpr int kThreads = 64, kRounds = 5;
  const buffer<unsigned> count(std::vector<unsigned>{0});
  const buffer<int> slots(2 * blocks * kThreads), out(blocks * kThreads);
  testing::run(goes_round, {.grid = {blocks}, .block = {kThreads}, .shared_bytes = shared_bytes},
               count.data(), slots.data(), out.data(), kRounds);
  const std::vector<int> got = out.get();
  for (int i = 0; i < blocks * kThreads; ++i) {
    CHECK_EQUAL(got[i], 1000 * ((i / kThreads + kRounds) % blocks) + i % kThreads);
  }
}

TEST(a_barrier_of_the_grid) {
  for (const char* options : kOptions) {
    const with_options chosen(options);
    check_rounds(host::multiprocessors(), 200 * 1024);  // one block on each
    check_rounds(6 * host::multiprocessors(), 0);
  }
}

// Every block waits for the one after it, and adds itself: a chain, of more blocks than a wave.
__global__ void chain(int* flags, int* sums) {
  if (arch::thread_id() != 0) return;
  const int block = arch::block_x();
  int sum = block;
  if (block > 0) {
    while (arch::load_acquire(&flags[block - 1]) == 0) {
    }
    sum += sums[block - 1];
  }
  sums[block] = sum;
  arch::store_release(&flags[block], 1);
}

TEST(a_chain_of_blocks) {
  constexpr int kBlocks = 40;
  for (const char* options : {"eager,threads=1", "eager"}) {  // the device's order
    const with_options chosen(options);
    const buffer<int> flags(std::vector<int>(kBlocks, 0)), sums(kBlocks);
    testing::run(chain, {.grid = {kBlocks}, .block = {32}, .shared_bytes = 200 * 1024},
                 flags.data(), sums.data());
    const std::vector<int> got = sums.get();
    for (int i = 0; i < kBlocks; ++i) CHECK_EQUAL(got[i], i * (i + 1) / 2);
  }
}

// The device does not promise in which order blocks begin: where the first that does waits for one
// that has no place, both wait for ever. One block runs at a time, where there is little room.
TEST(a_chain_of_blocks_that_begin_in_another_order) {
  constexpr int kBlocks = 4;
  for (const char* options :
       {"eager,threads=1,residents=1", "lazy,threads=2,residents=1,spin=0.3"}) {
    const with_options chosen(options);
    const buffer<int> flags(std::vector<int>(kBlocks, 0)), sums(kBlocks);
    const std::string report =
        report_of(chain, {.grid = {kBlocks}, .block = {32}}, flags.data(), sums.data());
    if (options[0] == 'e') {
      CHECK_EQUAL(report, "");
      CHECK_EQUAL(sums.get()[kBlocks - 1], kBlocks * (kBlocks - 1) / 2);
    } else {
      CHECK_CONTAINS(report, "LIVELOCK at test_residents.cu:");
      CHECK_CONTAINS(report, "(1 of the grid's 4 blocks run at one time)");
    }
  }
}

// More blocks than run at one time wait for all of them.
TEST(a_barrier_of_more_than_a_wave_is_reported) {
  for (const char* options : {"eager,threads=1,spin=0.3", "lazy,threads=2,spin=0.3"}) {
    const with_options chosen(options);
    const int blocks = host::multiprocessors() + 1;
    const buffer<unsigned> count(std::vector<unsigned>{0});
    const buffer<int> slots(2 * blocks * 32), out(blocks * 32);
    const std::string report =
        report_of(goes_round, {.grid = {blocks}, .block = {32}, .shared_bytes = 200 * 1024},
                  count.data(), slots.data(), out.data(), 2);
    CHECK_CONTAINS(report, "LIVELOCK at test_residents.cu:");
    CHECK_CONTAINS(report, "(4 of the grid's 5 blocks run at one time)");
  }
}

// A block fails while the others wait for it: its report is the one.
__global__ void last_one_fails(unsigned* count) {
  const bool is_last = arch::block_x() == arch::grid_x() - 1;
  if (is_last && arch::thread_id() == 3) arch::named_barrier_sync(5, 64);
  if (!is_last) sync_grid(count, arch::grid_x());
}

TEST(who_waits_for_a_failed_block_says_nothing) {
  for (const char* options : kOptions) {
    const with_options chosen(options);
    const buffer<unsigned> count(std::vector<unsigned>{0});
    const std::string report =
        report_of(last_one_fails, {.grid = {4}, .block = {32}}, count.data());
    CHECK_CONTAINS(report, "BARRIER at test_residents.cu:");
    CHECK_CONTAINS(report, "threads of barrier 5 must be");
  }
}

}  // namespace
