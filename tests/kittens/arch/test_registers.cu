// arch/registers.cuh: registers move from one warpgroup to others, and back.
#include "harness.h"
#include "kittens/arch/arch.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kThreads = 384;

// The first warpgroup gives up what the two others ask for.
__global__ void __launch_bounds__(kThreads, 1) one_gives_two_take(int* out) {
  const int warpgroup = arch::warp_id() / 4;
  if (warpgroup == 0) {
    arch::lower_registers<24>();
  } else {
    arch::raise_registers<240>();
  }
  arch::sync_block();
  out[arch::thread_id()] = arch::shuffle(arch::thread_id(), 0) + warpgroup;
}

TEST(one_warpgroup_gives_two_take) {
  const buffer<int> out(2 * kThreads);
  run(one_gives_two_take, {.grid = {2}, .block = {kThreads}}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < kThreads; ++i) CHECK_EQUAL(got[i], i / 32 * 32 + i / 128);
}

// The warpgroups take turns with the registers of a third of them.
__global__ void __launch_bounds__(kThreads, 1) take_turns(int* out, int rounds) {
  const int warpgroup = arch::warp_id() / 4;
  int sum = 0;
  arch::lower_registers<120>();
  for (int i = 0; i < rounds; ++i) {
    arch::sync_block();
    if (i % 3 == warpgroup) {
      arch::raise_registers<216>();
      sum += i;
      arch::named_barrier_sync(1 + warpgroup, 128);
      arch::lower_registers<120>();
    }
  }
  out[arch::thread_id()] = sum;
}

TEST(warpgroups_take_turns) {
  const buffer<int> out(kThreads);
  run(take_turns, {.grid = {1}, .block = {kThreads}}, out.data(), 7);
  const std::vector<int> got = out.get();
  constexpr int kSums[3] = {0 + 3 + 6, 1 + 4, 2 + 5};
  for (int i = 0; i < kThreads; ++i) CHECK_EQUAL(got[i], kSums[i / 128]);
}

}  // namespace
