// Which phase a parity stands for: the simulator takes it as the hardware does, and race mode
// reports a wait for which that depends on who comes first.
#include <tuple>
#include <utility>

#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::with_options;

namespace {

constexpr const char* kPolicies[] = {"eager", "lazy", "random:1"};

std::string line_text(int line) { return "test_phases.cu:" + std::to_string(line); }

KITTENS_DEVICE arch::mbarrier* barrier(int offset = 0) {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + offset);
}

// How thread 0 learns, before its second wait, that all arrivals have come. What a relaxed atomic
// operation wrote orders nothing.
enum class news { barrier, relaxed };

// Thread 0 waits for phase 0, and for `parity` when `phases` are over.
__global__ void waits_again(news by, int phases, uint32_t parity, int* flag) {
  arch::mbarrier* b = barrier();
  if (arch::thread_id() == 0) arch::mbarrier_init(b, 1);
  arch::sync_block();
  if (arch::thread_id() == 32) arch::mbarrier_arrive(b);
  if (arch::thread_id() == 0) arch::mbarrier_wait(b, 0);
  arch::sync_block();
  if (arch::thread_id() == 32) {
    for (int i = 1; i < phases; ++i) arch::mbarrier_arrive(b);
    if (by == news::relaxed) arch::atomic_add(flag, 1);
  }
  while (by == news::relaxed && arch::thread_id() == 0 && arch::load_acquire(flag) == 0) {
  }
  if (by == news::barrier) arch::sync_block();
  if (arch::thread_id() == 0) arch::mbarrier_wait(b, parity);
}
constexpr int kAgainLine = __LINE__ - 2;

std::string report_again(const std::string& policy, news by, int phases, uint32_t parity) {
  const with_options chosen(policy);
  const buffer<int> flag(1);
  flag.data()[0] = 0;
  return report_of(waits_again, 64, by, phases, parity, flag.data());
}

TEST(phases_may_be_skipped_by_who_knows_that_they_are_over) {
  for (const std::string policy : kPolicies) {
    for (const char* mode : {"", ",race"}) {
      for (const auto& [phases, parity] : {std::pair{2, 1u}, {3, 0u}, {4, 1u}, {5, 0u}, {6, 1u}}) {
        CHECK_EQUAL(report_again(policy + mode, news::barrier, phases, parity), "");
      }
      // The parity stands for the phase that goes on, which nobody ends.
      CHECK_CONTAINS(report_again(policy + mode, news::barrier, 3, 1), "phase 3 (parity 1)");
    }
  }
}

TEST(a_parity_that_may_stand_for_two_phases) {
  for (const std::string policy : kPolicies) {
    CHECK_EQUAL(report_again(policy + ",race", news::relaxed, 2, 1), "");  // 1 comes after 0
    const std::tuple<int, uint32_t, const char*> cases[] = {
        {3, 0,
         "parity 0 of thread 0 stands for phase 2 here, but nothing orders the end of phase "
         "1 before: where that comes later, it stands for phase 0"},
        {3, 1,
         "parity 1 of thread 0 stands for phase 3 here, but nothing orders the end of phase "
         "2 before: where that comes later, it stands for phase 1"},
        {4, 1, "parity 1 of thread 0 stands for phase 3 here"},
    };
    for (const auto& [phases, parity, text] : cases) {
      const std::string report = report_again(policy + ",race", news::relaxed, phases, parity);
      CHECK_CONTAINS(report, "MBARRIER at " + line_text(kAgainLine));
      CHECK_CONTAINS(report, text);
    }
  }
}

// Three warps take the phases in turns, each the third after its last.
__global__ void takes_in_turns(bool in_order, int* out) {
  constexpr int kTakers = 3, kPhases = 9;
  arch::mbarrier *full = barrier(), *empty = barrier(8);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(full, 1);
    arch::mbarrier_init(empty, 1);
  }
  arch::sync_block();
  const int warp = arch::warp_id(), lane = arch::lane_id();
  if (warp == kTakers) {
    if (lane > 0) return;
    for (int i = 0; i < kPhases; ++i) {
      arch::mbarrier_wait(empty, (i & 1) ^ 1);
      arch::store_shared(reinterpret_cast<int*>(barrier(16)), i);
      arch::mbarrier_arrive(full);
    }
    return;
  }
  for (int i = warp; i < kPhases; i += kTakers) {
    if (in_order && i > 0) arch::named_barrier_sync(1 + warp, 64);
    arch::mbarrier_wait(full, i & 1);
    if (lane == 0) out[i] = arch::load_shared(reinterpret_cast<const int*>(barrier(16)));
    arch::sync_warp();
    if (in_order && i + 1 < kPhases) arch::named_barrier_arrive(1 + (warp + 1) % kTakers, 64);
    if (lane == 0) arch::mbarrier_arrive(empty);
  }
}

TEST(phases_that_are_taken_in_turns) {
  for (const std::string policy : kPolicies) {
    for (const char* mode : {"", ",race"}) {
      const with_options chosen(policy + mode);
      const buffer<int> out(9);
      CHECK_EQUAL(report_of(takes_in_turns, 128, true, out.data()), "");
      for (int i = 0; i < 9; ++i) CHECK_EQUAL(out.data()[i], i);
    }
    const with_options chosen(policy + ",race");
    const buffer<int> out(9);
    CHECK(report_of(takes_in_turns, 128, false, out.data()) != "");
  }
}

}  // namespace
