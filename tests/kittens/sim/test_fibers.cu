// Fibers keep what a thread has on its stack and in its registers while others run.
#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

// More live values than there are registers, all different in each thread.
__global__ void keeps_values(const int64_t* in, int64_t* out) {
  const int t = arch::thread_id();
  const int64_t a = in[t], b = in[t + 1], c = in[t + 2], d = in[t + 3], e = in[t + 4];
  const int64_t f = in[t + 5], g = in[t + 6], h = in[t + 7], i = in[t + 8], j = in[t + 9];
  arch::sync_block();
  out[t] = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

TEST(values_survive_a_switch) {
  constexpr int kThreads = 256, kTaps = 10;
  std::vector<int64_t> in;
  for (int64_t i = 0; i < kThreads + kTaps; ++i) in.push_back(i * i * 1000003);
  const buffer<int64_t> from(in), to(kThreads);
  run(keeps_values, {.grid = {1}, .block = {kThreads}}, from.data(), to.data());
  const std::vector<int64_t> got = to.get();
  for (int t = 0; t < kThreads; ++t) {
    int64_t want = 0;
    for (int i = 0; i < kTaps; ++i) want += (i + 1) * in[t + i];
    CHECK_EQUAL(got[t], want);
  }
}

// An array of its own for each thread, larger than a page.
__global__ void keeps_arrays(int* out) {
  constexpr int kWords = 4096;
  volatile int mine[kWords];
  for (int i = 0; i < kWords; ++i) mine[i] = i * 31 + arch::thread_id();
  arch::sync_block();
  int errors = 0;
  for (int i = 0; i < kWords; ++i) errors += mine[i] != i * 31 + arch::thread_id();
  out[arch::thread_id()] = errors;
}

TEST(stacks_are_apart) {
  const buffer<int> out(1024);
  run(keeps_arrays, {.grid = {1}, .block = {1024}}, out.data());
  for (const int errors : out.get()) CHECK_EQUAL(errors, 0);
}

// An exception that is thrown and caught within a thread, between two switches.
__global__ void catches(int* out) {
  arch::sync_block();
  try {
    throw arch::thread_id();
  } catch (const int id) {
    out[id] = id;
  }
  arch::sync_block();
}

TEST(exceptions_unwind_on_a_fiber) {
  const buffer<int> out(64);
  run(catches, {.grid = {1}, .block = {64}}, out.data());
  for (int i = 0; i < 64; ++i) CHECK_EQUAL(out.get()[i], i);
}

}  // namespace
