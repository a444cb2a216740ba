// The policies: when asynchronous work is done, in which order threads and blocks run, and that the
// same seed gives the same run.
#include <set>

#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::error_of;
using testing::report_of;
using testing::run;
using testing::with_options;

namespace {

// Copies one float per thread; `waits` as it should be, or not.
__global__ void copies(const float* in, float* out, bool waits) {
  float* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_id();
  arch::cp_async<4>(shared + i, in + i);
  arch::cp_async_commit();
  if (waits) arch::cp_async_wait<0>();
  arch::sync_block();
  out[i] = shared[(i + 1) % arch::block_threads()];
}

int wrong_copies(bool waits, int threads = 64) {
  std::vector<float> in;
  for (int i = 0; i < threads; ++i) in.push_back(i);
  const buffer<float> from(in), to(threads);
  run(copies, {.grid = {1}, .block = {threads}, .shared_bytes = threads * 4}, from.data(),
      to.data(), waits);
  const std::vector<float> got = to.get();
  int wrong = 0;
  for (int i = 0; i < threads; ++i) wrong += !(got[i] == (i + 1) % threads);
  return wrong;
}

TEST(a_missing_wait_is_seen_unless_eager) {
  for (const char* policy : {"eager", "lazy", "random:1", "random:2"}) {
    const with_options chosen(policy);
    CHECK_EQUAL(wrong_copies(true), 0);
  }
  CHECK_EQUAL((with_options("eager"), wrong_copies(false)), 0);
  CHECK_EQUAL((with_options("lazy"), wrong_copies(false)), 64);
  CHECK((with_options("random:1"), wrong_copies(false)) > 0);
}

// Waits for one group too few.
__global__ void waits_for_the_older(const float* in, float* out) {
  float* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  for (int i = 0; i < 2; ++i) {
    arch::cp_async<4>(shared + i, in + i);
    arch::cp_async_commit();
  }
  arch::cp_async_wait<1>();
  for (int i = 0; i < 2; ++i) out[i] = shared[i];
}

TEST(a_wait_is_for_the_older_groups) {
  const with_options lazy("lazy");
  const buffer<float> from(std::vector<float>{3, 4}), to(2);
  run(waits_for_the_older, {.grid = {1}, .block = {1}, .shared_bytes = 8}, from.data(), to.data());
  CHECK_EQUAL(to.get()[0], 3.0f);
  CHECK(std::isnan(to.get()[1]));
}

// A reader that runs before its writer, unless a barrier is between them.
__global__ void misses_a_barrier(float* out) {
  volatile float* shared = reinterpret_cast<volatile float*>(arch::dynamic_shared());
  const int i = arch::thread_id(), n = arch::block_threads();
  shared[i] = i;
  out[i] = shared[(i + 1) % n];
}

TEST(a_missing_barrier_reads_poison) {
  for (const char* policy : {"eager", "random:1", "random:2"}) {
    const with_options chosen(policy);
    const buffer<float> out(64);
    run(misses_a_barrier, {.grid = {1}, .block = {64}, .shared_bytes = 256}, out.data());
    int unwritten = 0;
    for (const float v : out.get()) unwritten += std::isnan(v);
    CHECK(unwritten > 0);
  }
}

// The order in which threads, and blocks, come to a counter; the second time after a barrier.
__global__ void orders(int* counters, int* order) {
  const int n = arch::grid_x() * arch::block_threads();
  const int i = arch::block_x() * arch::block_threads() + arch::thread_id();
  order[arch::atomic_add(counters, 1)] = i;
  arch::sync_block();
  order[n + arch::atomic_add(counters + 1, 1)] = i;
}

constexpr int kOrderThreads = 96;

std::vector<int> order_under(const std::string& options, int blocks) {
  const with_options chosen(options + ",threads=1");
  const buffer<int> counters(std::vector<int>{0, 0}), order(2 * blocks * kOrderThreads);
  run(orders, {.grid = {blocks}, .block = {kOrderThreads}}, counters.data(), order.data());
  return order.get();
}

TEST(eager_goes_up_and_lazy_down) {
  constexpr int kBlocks = 7, kAll = kBlocks * kOrderThreads;
  const std::vector<int> up = order_under("eager", kBlocks), down = order_under("lazy", kBlocks);
  for (int i = 0; i < kAll; ++i) {
    CHECK_EQUAL(up[i], i);
    CHECK_EQUAL(down[i], kAll - 1 - i);
  }
}

// One block: the threads' order differs. Seven: that of the blocks, too.
TEST(a_seed_gives_the_same_order_each_time) {
  for (const int blocks : {1, 7}) {
    std::set<std::vector<int>> different = {order_under("eager", blocks),
                                            order_under("lazy", blocks)};
    std::set<int> first_blocks;
    for (int seed = 0; seed < 5; ++seed) {
      const std::string options = "random:" + std::to_string(seed);
      const std::vector<int> order = order_under(options, blocks);
      CHECK(order == order_under(options, blocks));
      const int all = blocks * kOrderThreads;
      CHECK_EQUAL(std::set<int>(order.begin(), order.begin() + all).size(), all);
      different.insert(order);
      first_blocks.insert(order[0] / kOrderThreads);
    }
    CHECK_EQUAL(different.size(), 7u);
    CHECK((first_blocks.size() > 1) == (blocks > 1));
  }
}

// Each block writes which it is; no atomics, so that the cores do not matter.
__global__ void marks(int64_t* out) {
  const int64_t block =
      (int64_t{arch::block_z()} * arch::grid_y() + arch::block_y()) * arch::grid_x() +
      arch::block_x();
  arch::sync_block();
  if (arch::thread_id() == 31) out[block] += block + 1;
}

TEST(each_block_runs_once_on_any_number_of_cores) {
  for (const char* options : {"eager,threads=1", "lazy,threads=3", "random:4,threads=8", "eager"}) {
    const with_options chosen(options);
    const buffer<int64_t> out(std::vector<int64_t>(5 * 4 * 6, 0));
    run(marks, {.grid = {5, 4, 6}, .block = {32}}, out.data());
    const std::vector<int64_t> got = out.get();
    for (int i = 0; i < 5 * 4 * 6; ++i) CHECK_EQUAL(got[i], i + 1);
  }
}

__global__ void fails_from(int first) {
  if (arch::block_x() >= first && arch::thread_id() == 0) return;
  arch::sync_block();
}

TEST(the_first_failing_block_is_reported_on_any_number_of_cores) {
  for (int round = 0; round < 5; ++round) {
    const with_options chosen("eager,threads=4");
    const std::string report = report_of(fails_from, {.grid = {40}, .block = {64}}, 17);
    CHECK_CONTAINS(report, "block (17, 0, 0)");
  }
}

TEST(options_are_read_and_refused) {
  CHECK_EQUAL(sim::to_string(sim::parse_options("")), "eager");
  CHECK_EQUAL(sim::to_string(sim::parse_options("lazy,threads=2")), "lazy,threads=2");
  CHECK_EQUAL(sim::to_string(sim::parse_options("random:18446744073709551615")),
              "random:18446744073709551615");
  for (const char* text : {"fast", "random:x", "threads=-1", "threads=", "eager lazy"}) {
    CHECK_CONTAINS(error_of([&] { sim::parse_options(text); }),
                   "simulator options: expected eager, lazy, random:SEED");
  }
}

}  // namespace

extern "C" int kittens_sim_configure(const char* text);
extern "C" const char* kittens_sim_last_error();

namespace {

TEST(options_are_set_from_c) {
  const with_options restored("eager");
  CHECK_EQUAL(kittens_sim_configure("random:9"), 0);
  CHECK_EQUAL(sim::to_string(sim::current_options()), "random:9");
  CHECK_EQUAL(kittens_sim_configure("nonsense"), -1);
  CHECK_CONTAINS(kittens_sim_last_error(), "got nonsense");
  CHECK_EQUAL(sim::to_string(sim::current_options()), "random:9");
}

// Each warp leaves a number for the other, one barrier a round; `halves`: of the memory, used in
// turn. With one half, a fast warp overwrites what the other has not read yet.
__global__ void exchanges(float* wrong, int halves) {
  float* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int warp = arch::warp_id(), lane = arch::lane_id();
  for (int round = 0; round < 8; ++round) {
    float* half = shared + round % halves * 2;
    if (lane == 0) arch::store_shared(half + warp, static_cast<float>(round));
    arch::sync_block();
    const float other = arch::load_shared(half + 1 - warp);
    for (int i = 0; i < 8; ++i) arch::shuffle_xor(other, 1);  // lanes go on in step
    if (other != static_cast<float>(round)) wrong[warp] = 1.0f;
  }
}

float wrong_exchanges(const std::string& policy, int halves) {
  const with_options chosen(policy);
  const buffer<float> wrong(std::vector<float>{0, 0});
  run(exchanges, {.grid = {1}, .block = {64}, .shared_bytes = 16}, wrong.data(), halves);
  return wrong.get()[0] + wrong.get()[1];
}

TEST(random_lets_a_warp_run_ahead) {
  int seen = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    const std::string policy = "random:" + std::to_string(seed);
    CHECK_EQUAL(wrong_exchanges(policy, 2), 0.0f);
    seen += wrong_exchanges(policy, 1) > 0;
  }
  CHECK(seen >= 4);
}

}  // namespace
