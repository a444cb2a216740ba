// The blocks of one cluster of a simulated grid: one block, where a launch asks for no clusters.
//
// The threads of its blocks are fibers on one OS thread. A fiber runs until it waits: for a
// barrier, for the other lanes of a collective. When no fiber is ready, asynchronous work is done;
// when there is none either, the cluster is at its end or in a deadlock. Different clusters run on
// different OS threads. When all that a cluster's threads do is spin, they may wait for another
// cluster, and this one lets others have its core (residents.hpp).
//
// Nothing unwinds across a switch: what is wrong is noted, all fibers are left where they are, and
// the report is composed outside of them.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/api.hpp"
#include "sim/async_work.hpp"
#include "sim/cluster_barrier.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"
#include "sim/scheduler.hpp"
#include "sim/shared_memory.hpp"

namespace kittens::sim {

class block;
class residents;
class timeline;

namespace race {
class detector;
class launch_trace;
}  // namespace race

// What is the same for all blocks of a launch.
struct grid_launch {
  const void* kernel = nullptr;
  thread_function thread = nullptr;
  const void* context = nullptr;
  position grid;  // blocks
  int cluster_blocks = 1;
  int block_threads = 0;
  int64_t shared_bytes = 0;  // of a block
  bool programmatic = false;
  std::span<const host::memory_range> constant;
  options chosen;
  std::shared_ptr<const guarded_buffers> guards;
  residents* all = nullptr;            // its clusters that run
  race::launch_trace* race = nullptr;  // null: race mode is off
};

// The memory that a cluster needs, used again for the next.
struct workspace {
  stacks fiber_stacks;
  std::vector<std::unique_ptr<shared_memory>> shared;  // [blocks of the largest cluster so far]
};

class cluster {
 public:
  // `first`: the place of its block of rank 0; the others follow along x.
  cluster(const grid_launch& launch, const position& first, uint64_t seed, workspace& memory);
  ~cluster();

  // Runs it to its end, watched by those that are not null. Returns the report, or nothing.
  std::string run(fact_counter* facts, timeline* traced);

  // The cluster of the calling fiber.
  static cluster& running();

  const grid_launch& launch() const { return launch_; }
  scheduler& threads() { return threads_; }
  async_work& asynchronous() { return asynchronous_; }
  cluster_barrier& barrier() { return barrier_; }
  timeline* traced() { return traced_; }  // null: nobody asked for it
  int size() const { return static_cast<int>(blocks_.size()); }
  block& block_at(int rank) { return *blocks_[rank]; }

  // Notes what is wrong with the block of `rank`, and ends the cluster. From inside of a fiber or
  // of asynchronous work.
  [[noreturn]] void fail(int rank, const char* kind, call_site site, const trace& where,
                         const char* format, va_list arguments);
  // The current thread only spins, for now.
  void spin(call_site site);
  bool is_spinning() const { return is_spinning_; }

 private:
  static void enter_thread();  // what each fiber runs
  void start(fact_counter* facts);
  void run_to_end();
  std::string compose();  // the report
  void check_end();       // of a cluster that nothing was wrong with before
  void check_progress(call_site site);
  void pause();

  const grid_launch& launch_;
  workspace& memory_;
  random_sequence random_;
  async_work asynchronous_;
  scheduler threads_;
  cluster_barrier barrier_;
  std::vector<std::unique_ptr<block>> blocks_;  // by rank
  std::unique_ptr<race::detector> races_;       // null: race mode is off
  finding found_;
  timeline* traced_ = nullptr;
  uint64_t spins_ = 0;
  double spinning_since_ = 0;  // seconds of the steady clock
  uint64_t progress_before_ = 0;
  uint64_t idle_spins_ = 0, wakeups_before_ = 0;  // spins since the last wakeup
  uint64_t wakeups_at_pause_ = 0;
  bool is_spinning_ = false;  // as `all` knows
};

}  // namespace kittens::sim
