// Kernels with planted bugs, and what the simulator says about each.
#include "include/kittens/planted_ops.cuh"
#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::run;
using testing::with_options;

namespace {

std::string line_text(int line) { return "test_reports.cu:" + std::to_string(line); }

// ---- deadlocks

__global__ void waits_for_absent_warp() {
  if (arch::warp_id() == 3) return;
  arch::sync_block();
}
constexpr int kAbsentLine = __LINE__ - 2;

TEST(deadlock_names_waiting_and_exited_threads_and_the_line) {
  const std::string report = report_of(waits_for_absent_warp, 128);
  CHECK_CONTAINS(report, "DEADLOCK: no thread can run");
  CHECK_CONTAINS(report, "waits_for_absent_warp");
  CHECK_CONTAINS(report, "block (0, 0, 0) of (1, 1, 1)");
  CHECK_CONTAINS(report, "96 threads [0-95] wait at " + line_text(kAbsentLine) +
                             " for sync_block: 96 of 128 threads have arrived");
  CHECK_CONTAINS(report, "32 threads [96-127] have exited");
}

__global__ void waits_at_two_barriers() {
  arch::named_barrier_sync(arch::warp_id() == 0 ? 1 : 2, 64);
}

TEST(deadlock_names_each_barrier) {
  const std::string report = report_of(waits_at_two_barriers, 64);
  CHECK_CONTAINS(report, "32 threads [0-31] wait at ");
  CHECK_CONTAINS(report, "for barrier 1: 32 of 64 threads have arrived");
  CHECK_CONTAINS(report, "32 threads [32-63] wait at ");
  CHECK_CONTAINS(report, "for barrier 2: 32 of 64 threads have arrived");
}

__global__ void half_warp_at_barrier() {
  if (arch::lane_id() < 16) {
    arch::sync_block();
  } else {
    arch::sync_warp(0xffff0000u);
    arch::shuffle_xor(arch::lane_id(), 1);
  }
}

TEST(deadlock_between_a_barrier_and_a_shuffle) {
  const std::string report = report_of(half_warp_at_barrier, 32);
  CHECK_CONTAINS(report, "DEADLOCK");
  CHECK_CONTAINS(report, "16 threads [0-15] wait at ");
  CHECK_CONTAINS(report, "for shuffle_xor of warp 0: lanes 16-31 came, lanes 0-15 did not");
}

__global__ void waits_through_the_library(int* out) {
  if (arch::warp_id() == 0) {
    testing::inlined_sync();
  } else if (arch::lane_id() < 9) {
    out[0] = testing::called_shuffle(1);
  } else {
    arch::named_barrier_sync(1, 64);
  }
}
constexpr int kThroughLine = __LINE__ - 9;

TEST(reports_name_the_line_of_the_kernel_not_of_the_library) {
  const buffer<int> out(1);
  const std::string report = report_of(waits_through_the_library, 64, out.data());
  const auto through = [](int line) {
    return " (through planted_ops.cuh:" + std::to_string(line) + ")";
  };
  CHECK_CONTAINS(report, line_text(kThroughLine + 2) + through(testing::kInlinedLine));
  CHECK_CONTAINS(report, line_text(kThroughLine + 4) + through(testing::kCalledLine));
}

// ---- divergence

__global__ void shuffles_at_two_lines(int* out) {
  int v = arch::lane_id();
  if (arch::lane_id() < 20) {
    v = arch::shuffle_xor(v, 1);
  } else {
    v = arch::shuffle_xor(v, 2);
  }
  out[arch::thread_id()] = v;
}
constexpr int kFirstShuffle = __LINE__ - 6;

TEST(divergence_names_both_lines) {
  buffer<int> out(32);
  for (const char* policy : {"eager", "lazy"}) {
    const with_options chosen(policy);
    const std::string report = report_of(shuffles_at_two_lines, 32, out.data());
    CHECK_CONTAINS(report,
                   "DIVERGENCE at " + line_text(kFirstShuffle + (policy[0] == 'e' ? 2 : 0)));
    CHECK_CONTAINS(report, line_text(kFirstShuffle));
    CHECK_CONTAINS(report, line_text(kFirstShuffle + 2));
  }
}

__global__ void different_collectives(int* out) {
  // One line, so that only the operation differs.
  out[0] = arch::lane_id() == 7 ? arch::vote_any(true) : arch::shuffle(1, 0);
}

TEST(divergence_names_both_operations) {
  buffer<int> out(32);
  const std::string report = report_of(different_collectives, 32, out.data());
  CHECK_CONTAINS(report, "DIVERGENCE");
  CHECK_CONTAINS(report, "vote_any");
  CHECK_CONTAINS(report, "shuffle");
  CHECK_CONTAINS(report, "lane 7 of warp 0");
}

__global__ void lane_exits_before_shuffle(int* out) {
  if (arch::lane_id() == 5) return;
  out[0] = arch::shuffle(1, 0);
}

TEST(collective_after_a_lane_exited) {
  buffer<int> out(1);
  for (const char* policy : {"eager", "lazy", "random:3"}) {
    const with_options chosen(policy);
    const std::string report = report_of(lane_exits_before_shuffle, 32, out.data());
    CHECK_CONTAINS(report, "DIVERGENCE");
    CHECK_CONTAINS(report, "lane 5");
    CHECK_CONTAINS(report, "exit");
  }
}

__global__ void last_lane_exits(int* out) {
  if (arch::lane_id() == 31) return;
  out[0] = arch::shuffle(1, 0);
}

TEST(lane_exits_while_others_wait_for_it) {
  const buffer<int> out(1);
  const with_options chosen("eager");
  CHECK_CONTAINS(report_of(last_lane_exits, 32, out.data()),
                 "lane 31 of warp 0 exits, but lane 0 waits for it in shuffle");
}

__global__ void shuffles(int* out) { out[0] = arch::shuffle(1, 0); }

TEST(full_mask_in_a_partial_warp) {
  buffer<int> out(1);
  CHECK_CONTAINS(report_of(shuffles, 48, out.data()),
                 "needs lanes 16 to 31, but the block has 48 threads");
}

__global__ void foreign_mask() { arch::sync_warp(0x0000ffffu); }

TEST(mask_without_the_caller) {
  CHECK_CONTAINS(report_of(foreign_mask, 32), "with mask 0x0000ffff, in which it is not");
}

__global__ void overlapping_masks() {
  arch::sync_warp(arch::lane_id() < 16 ? 0x0001ffffu : 0xffff0000u);
}

TEST(masks_that_overlap) { CHECK_CONTAINS(report_of(overlapping_masks, 32), "DIVERGENCE"); }

__global__ void sync_block_at_two_lines() {
  if (arch::lane_id() < 16) {
    arch::sync_block();
  } else {
    arch::sync_block();
  }
}

TEST(lanes_of_a_warp_at_two_sync_blocks) {
  const std::string report = report_of(sync_block_at_two_lines, 64);
  CHECK_CONTAINS(report, "DIVERGENCE");
  CHECK_CONTAINS(report, "arrives at sync_block here, but lane");
}

// ---- barriers

__global__ void named_barrier(int id, int threads) { arch::named_barrier_sync(id, threads); }

TEST(barrier_arguments) {
  CHECK_CONTAINS(report_of(named_barrier, 64, 0, 64), "named barrier id must be 1 to 15, got 0");
  CHECK_CONTAINS(report_of(named_barrier, 64, 16, 64), "named barrier id must be 1 to 15, got 16");
  CHECK_CONTAINS(report_of(named_barrier, 64, 1, 48),
                 "must be a multiple of 32 up to the block's 64");
  CHECK_CONTAINS(report_of(named_barrier, 64, 1, 0), "got 0");
  CHECK_CONTAINS(report_of(named_barrier, 64, 1, 128), "got 128");
  CHECK_EQUAL(report_of(named_barrier, 64, 15, 64), "");
}

__global__ void disagreeing_counts() {
  arch::named_barrier_sync(4, arch::warp_id() == 0 ? 64 : 96);
}

TEST(threads_disagree_on_the_count) {
  const std::string report = report_of(disagreeing_counts, 96);
  CHECK_CONTAINS(report, "BARRIER at ");
  CHECK_CONTAINS(report, "barrier 4 is used for ");
  CHECK_CONTAINS(report, " threads here and for ");
}

__global__ void arrives_twice() {
  arch::named_barrier_arrive(2, 64);
  arch::named_barrier_arrive(2, 64);
}

TEST(a_thread_arrives_twice) {
  CHECK_CONTAINS(report_of(arrives_twice, 64), "arrives twice at barrier 2 before it completes");
}

// ---- the process goes on

__global__ void throws_from_a_thread() {
  if (arch::thread_id() == 3) throw std::runtime_error("a mistake of the kernel");
  arch::sync_block();
}

TEST(exceptions_stay_in_their_fiber) {
  CHECK_CONTAINS(report_of(throws_from_a_thread, 64), "a mistake of the kernel");
}

__global__ void thread_ids(int* out) {
  const int i = arch::block_x() * arch::block_threads() + arch::thread_id();
  arch::sync_block();
  out[i] = arch::shuffle(i, 0) + arch::lane_id();
}

TEST(a_launch_after_a_report_is_fine) {
  buffer<int> out(8 * 64);
  for (int round = 0; round < 20; ++round) {
    CHECK_CONTAINS(report_of(waits_for_absent_warp, 1024), "DEADLOCK");
    run(thread_ids, {.grid = {8}, .block = {64}}, out.data());
    const std::vector<int> got = out.get();
    for (int i = 0; i < 8 * 64; ++i) CHECK_EQUAL(got[i], i);
  }
}

__global__ void one_block_fails(int bad) {
  if (arch::block_x() == bad && arch::thread_id() == 0) return;
  arch::sync_block();
}

TEST(the_failing_block_is_named) {
  const std::string report = report_of(one_block_fails, {.grid = {5, 2, 3}, .block = {32}}, 3);
  CHECK_CONTAINS(report, "DEADLOCK");
  CHECK_CONTAINS(report, "block (3, ");
  CHECK_CONTAINS(report, " of (5, 2, 3)");
}

__global__ void spins_for_ever(int* flag) {
  while (arch::load_acquire(flag) == 0) {
  }
}

TEST(spinning_without_progress) {
  buffer<int> flag(std::vector<int>{0});
  const with_options chosen("eager,spin=0.05");
  CHECK_CONTAINS(report_of(spins_for_ever, 64, flag.data()), "LIVELOCK at ");
}

}  // namespace
