// Races of threads over shared memory, and what race mode says of each: the same under every
// policy.
#include <regex>

#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager,race", "lazy,race", "random:1,race", "random:7,race"};

std::string line_text(int line) { return "test_race.cu:" + std::to_string(line); }

template <class T = int>
KITTENS_DEVICE T* shared(int offset = 0) {
  return reinterpret_cast<T*>(arch::dynamic_shared() + offset);
}

// A report, without which threads it names: of many that race, which meet differs.
std::string without_threads(const std::string& report) {
  return std::regex_replace(report, std::regex("threads? [0-9][0-9, …-]*( [a-z]+?)s?(?= )"), "T$1");
}

// What all policies say of a kernel, which must be the same.
template <class... P>
std::string race_report(void (*kernel)(P...), const host::launch_config& config,
                        const std::type_identity_t<P>&... arguments) {
  std::string first;
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    const std::string report = report_of(kernel, config, arguments...);
    if (policy == kPolicies[0]) first = report;
    CHECK_EQUAL(without_threads(report), without_threads(first));
  }
  return first;
}

template <class... P>
std::string race_report(void (*kernel)(P...), int threads,
                        const std::type_identity_t<P>&... arguments) {
  return race_report(kernel, {.grid = {1}, .block = {threads}, .shared_bytes = 4096}, arguments...);
}

// ---- what orders threads

enum class order {
  none,
  block,
  named,
  warp,
  shuffle,
  semaphore,
  release,
  relaxed,
  half_fenced,
  fenced
};

KITTENS_DEVICE void meet(order how, bool first) {
  auto* const flag = shared<unsigned>(64);
  auto* const barrier = shared<arch::mbarrier>(72);
  switch (how) {
    case order::none: break;
    case order::block: arch::sync_block(); break;
    case order::named:
      first ? arch::named_barrier_arrive(3, 64) : arch::named_barrier_sync(3, 64);
      break;
    case order::warp: arch::sync_warp(); break;
    case order::shuffle: arch::shuffle(1, 0); break;
    case order::semaphore:
      first ? arch::mbarrier_arrive(barrier) : arch::mbarrier_wait(barrier, 0);
      break;
    case order::release:
      if (first) arch::store_release(flag, 1);
      while (arch::load_acquire(flag) == 0) {
      }
      break;
    case order::relaxed:
    case order::half_fenced:
    case order::fenced:
      if (first) {
        if (how != order::relaxed) arch::fence_block();
        arch::atomic_add(flag, 1);
      } else {
        while (arch::atomic_cas(flag, 1, 1) == 0) {
        }
        if (how == order::fenced) arch::fence_block();
      }
      break;
  }
}

// Thread 0 writes, `reader` reads; all the threads of a warp are on one side of `how`.
__global__ void hands_over(order how, int reader, int* out) {
  const int thread = arch::thread_id();
  if (thread == 0) {
    arch::mbarrier_init(shared<arch::mbarrier>(72), 32);
    *shared<unsigned>(64) = 0;
  }
  arch::sync_block();
  if (thread == 0) *shared() = 7;
  const bool first =
      how == order::semaphore || how == order::named ? arch::warp_id() == 0 : thread == 0;
  if (how >= order::release) {
    if (thread == 0 || thread == reader) meet(how, first);
  } else {
    meet(how, first);
  }
  if (thread == reader) *out = *shared();
}
constexpr int kReadLine = __LINE__ - 2, kWriteLine = __LINE__ - 10;

TEST(what_orders_threads_is_no_race) {
  const buffer<int> out(1);
  for (const order how :
       {order::block, order::named, order::semaphore, order::release, order::fenced}) {
    CHECK_EQUAL(race_report(hands_over, 64, how, 40, out.data()), "");
    CHECK_EQUAL(out.get()[0], 7);
  }
  CHECK_EQUAL(race_report(hands_over, 64, order::warp, 5, out.data()), "");
}

TEST(what_does_not_order_threads_is_a_race) {
  const buffer<int> out(1);
  for (const order how : {order::none, order::warp, order::relaxed, order::half_fenced}) {
    const std::string report = race_report(hands_over, 64, how, 40, out.data());
    CHECK_CONTAINS(report,
                   "RACE at " + line_text(kReadLine) +
                       ": thread 40 reads shared memory at offset 0; thread 0 writes it at " +
                       line_text(kWriteLine) + ", and nothing orders the two");
    CHECK_CONTAINS(report, "missing: a barrier between the two: sync_block(), a named one, or");
    CHECK_CONTAINS(report, "hands_over");
  }
  // A shuffle exchanges registers, and orders no memory.
  const std::string report = race_report(hands_over, 64, order::shuffle, 5, out.data());
  CHECK_CONTAINS(report, "thread 5 reads shared memory at offset 0; thread 0 writes it");
}

// ---- which accesses

enum class write { own_words, own_halves, own_bytes, own_rows, same_word, same_byte, neighbours };

__global__ void writes(write what) {
  const int i = arch::thread_id();
  switch (what) {
    case write::own_words: shared()[i] = i; break;
    case write::own_halves: shared<uint16_t>()[i] = static_cast<uint16_t>(i); break;
    case write::own_bytes: shared<uint8_t>()[i] = static_cast<uint8_t>(i); break;
    case write::own_rows: arch::store_shared(shared<float4>() + i, {1, 2, 3, 4}); break;
    case write::same_word: *shared() = 1; break;
    case write::same_byte: shared<uint8_t>()[i / 2] = 1; break;
    case write::neighbours:
      arch::store_shared(shared<float4>() + i, {1, 2, 3, 4});
      if (i == 3) shared<uint8_t>(64)[9] = 1;
      break;
  }
}

TEST(each_byte_by_itself) {
  for (const write what :
       {write::own_words, write::own_halves, write::own_bytes, write::own_rows}) {
    CHECK_EQUAL(race_report(writes, 64, what), "");
  }
  // The same value by all lanes of a warp is a race all the same.
  CHECK_CONTAINS(race_report(writes, 32, write::same_word),
                 "threads 0-31 write shared memory at offset 0, and nothing orders them");
  CHECK_CONTAINS(race_report(writes, 4, write::same_byte),
                 "threads 0-3 write shared memory at offset 0, and nothing orders them");
  CHECK_CONTAINS(race_report(writes, 8, write::neighbours), "shared memory at offset 73; thread");
}

__global__ void reads_then_writes(bool waits, int* out) {
  const int i = arch::thread_id();
  if (i == 0) *shared() = 3;
  arch::sync_block();
  out[i] = *shared();
  if (waits) arch::sync_block();
  if (i == 50) *shared() = 4;
}
constexpr int kManyLine = __LINE__ - 4;

TEST(a_write_after_many_reads) {
  const buffer<int> out(64);
  CHECK_EQUAL(race_report(reads_then_writes, 64, true, out.data()), "");
  const std::string report = race_report(reads_then_writes, 64, false, out.data());
  CHECK_CONTAINS(report, "RACE at " + line_text(kManyLine) + ": ");
  CHECK_CONTAINS(report, " read shared memory at offset 0; thread 50 writes it at " +
                             line_text(kManyLine + 2) + ", and nothing orders the two");
}

__global__ void reads_what_nobody_wrote(int* out) {
  if (arch::thread_id() < 4) shared(32)[arch::thread_id()] = 1;
  arch::sync_block();
  out[arch::thread_id()] = shared(32)[arch::thread_id()];
}
constexpr int kUnwrittenLine = __LINE__ - 2;

TEST(a_read_of_what_nobody_wrote) {
  const buffer<int> out(8);
  const std::string report = race_report(reads_what_nobody_wrote, 8, out.data());
  CHECK_CONTAINS(report, "UNINITIALISED at " + line_text(kUnwrittenLine) +
                             ": threads 4-7 read shared memory at offset 48, which nobody has "
                             "written\n  missing: the write that fills it");
}

__global__ void counts(bool plainly, int* out) {
  const int i = arch::thread_id();
  if (i == 0) *shared<unsigned>() = 0;
  arch::sync_block();
  if (plainly && i == 9) {
    *shared<unsigned>() += 1;
  } else {
    arch::atomic_add(shared<unsigned>(), 1);
  }
  arch::sync_block();
  if (i == 0) *out = static_cast<int>(*shared<unsigned>());
}

TEST(atomics_are_in_no_conflict_with_each_other) {
  const buffer<int> out(1);
  CHECK_EQUAL(race_report(counts, 64, false, out.data()), "");
  CHECK_EQUAL(out.get()[0], 64);
  CHECK_CONTAINS(race_report(counts, 64, true, out.data()), "RACE at ");
}

// ---- reports

__global__ void races_and_hangs() {
  *shared() = arch::thread_id();
  if (arch::thread_id() == 0) arch::named_barrier_sync(1, 64);
}

TEST(a_race_is_told_before_what_comes_of_it) {
  const std::string report = race_report(races_and_hangs, 64);
  const size_t race = report.find("RACE at "), deadlock = report.find("DEADLOCK: ");
  CHECK(race == 0 && deadlock != std::string::npos);
}

__global__ void races_in_one_block(int* out) {
  if (arch::block_x() == 5 || arch::block_x() == 2) *shared() = arch::thread_id();
  *out = 1;
}

TEST(the_first_block_is_told) {
  const buffer<int> out(1);
  const host::launch_config config{.grid = {8}, .block = {32}, .shared_bytes = 64};
  CHECK_CONTAINS(race_report(races_in_one_block, config, out.data()),
                 "block (2, 0, 0) of (8, 1, 1)");
}

TEST(without_race_mode_nothing_is_told) {
  const buffer<int> out(1);
  const with_options chosen("eager");
  CHECK_EQUAL(report_of(hands_over, 64, order::none, 40, out.data()), "");
}

// Threads that meet often: what each step costs must not grow with all the threads that there are.
__global__ void meets_often(int rounds, int* out) {
  const int i = arch::thread_id(), n = arch::block_threads();
  int sum = 0;
  for (int r = 0; r < rounds; ++r) {
    shared()[i] = r;
    arch::sync_block();
    sum += shared()[(i + 33) % n];
    arch::sync_block();
  }
  out[i] = sum;
}

TEST(many_barriers) {
  constexpr int kThreads = 512, kRounds = 200;
  const buffer<int> out(kThreads);
  const with_options chosen("eager,race");
  CHECK_EQUAL(report_of(meets_often, kThreads, kRounds, out.data()), "");
  CHECK_EQUAL(out.get()[5], kRounds * (kRounds - 1) / 2);
}

}  // namespace
