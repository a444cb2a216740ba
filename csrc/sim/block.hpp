// One block of a simulated grid.
//
// Its threads are fibers on one OS thread. A fiber runs until it waits: for a barrier, for the
// other lanes of a collective. When no fiber is ready, asynchronous work is done; when there is
// none either, the block is at its end or in a deadlock. Different blocks run on different OS
// threads.
//
// Nothing unwinds across a switch: what is wrong is noted, all fibers are left where they are, and
// the report is composed outside of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/api.hpp"
#include "sim/async_work.hpp"
#include "sim/barrier.hpp"
#include "sim/collective.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"
#include "sim/scheduler.hpp"
#include "sim/shared_memory.hpp"

namespace kittens::sim {

// What is the same for all blocks of a launch.
struct grid_launch {
  const void* kernel = nullptr;
  thread_function thread = nullptr;
  const void* context = nullptr;
  position grid;  // blocks
  int block_threads = 0;
  int64_t shared_bytes = 0;
  options chosen;
  std::shared_ptr<const guarded_buffers> guards;
};

// The memory that a block needs, used again for the next.
struct workspace {
  stacks fiber_stacks;
  shared_memory shared;
};

class block {
 public:
  block(const grid_launch& launch, const position& place, uint64_t seed, workspace& memory);

  // Runs it to its end. Returns the report, or nothing.
  std::string run();

  // The block of the calling fiber.
  static block& running();

  scheduler& threads() { return threads_; }
  async_work& asynchronous() { return asynchronous_; }
  barrier& barrier_at(int id) { return barriers_[id]; }
  warp& current_warp() { return warps_[threads_.current().warp()]; }

  // Notes what is wrong, and ends the block. From inside of a fiber.
  [[noreturn]] [[gnu::format(printf, 4, 5)]] void fail(const char* kind, call_site site,
                                                       const char* format, ...);
  // The current thread only spins, for now.
  void spin(call_site site);

 private:
  static void enter_thread();  // what each fiber runs
  void check_end();            // of a block that nothing was wrong with before

  const grid_launch& launch_;
  const position place_;
  workspace& memory_;
  random_sequence random_;
  async_work asynchronous_;
  scheduler threads_;
  std::array<barrier, barrier::kCount> barriers_;
  std::vector<warp> warps_;
  finding found_;
  uint64_t spins_ = 0;
  double spinning_since_ = 0;  // seconds of the steady clock
  uint64_t progress_before_ = 0;
};

// The file of a path.
const char* file_name(const char* path);

}  // namespace kittens::sim
