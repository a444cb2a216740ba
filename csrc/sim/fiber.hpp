// Fibers: one simulated thread each, with a stack of its own, switched by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/api.hpp"
#include "sim/trace.hpp"

namespace kittens::sim {

class waitable;

// A bulk copy out of shared memory, as tickets of the cluster's asynchronous work.
struct pending_store {
  uint64_t read = 0, written = 0;
  bool is_waited_for = false;  // that it was read, at least
  call_site site;              // of the line that started it
  trace where;
};

// A simulated thread.
struct fiber {
  thread_view view;
  void* stack_pointer = nullptr;  // where it goes on, while it does not run
  int queue_warp = 0;             // its warp, among all of its cluster
  bool ready = false;             // in the scheduler's queue
  bool exited = false;
  const waitable* waits_for = nullptr;  // and at which line:
  call_site site;
  trace where;  // its call stack, when a report asks for it

  // The phase of the cluster's barrier that it has arrived at and not waited for; 0: none.
  uint64_t cluster_phase = 0;

  // Its cp.async copies, as tickets of the cluster's asynchronous work.
  std::vector<uint64_t> open_copies;               // not committed yet
  std::vector<std::vector<uint64_t>> copy_groups;  // committed, oldest first

  // Its bulk copies out of shared memory.
  std::vector<pending_store> open_bulk_stores;
  std::vector<std::vector<pending_store>> bulk_groups;  // committed, oldest first

  int lane() const { return view.thread % 32; }
  int warp() const { return view.thread / 32; }
};

// The stacks of one cluster's fibers: address space only, until it is touched.
class stacks {
 public:
  stacks() = default;
  ~stacks();
  stacks(const stacks&) = delete;
  stacks& operator=(const stacks&) = delete;

  // A stack pointer which, switched to, calls `entry` on stack `index`. `entry` must not return.
  void* prepare(int index, void (*entry)());

 private:
  static constexpr size_t kStackBytes = 128 * 1024;  // a guard page included
  static constexpr size_t kGuardBytes = 4096;

  uint8_t* bottom(int index);

  // Allocated in pieces, for this many fibers.
  static constexpr int kPiece = host::kMaxBlockThreads;
  static constexpr size_t kPieceBytes = kPiece * kStackBytes;

  std::vector<uint8_t*> pieces_;
  int guarded_ = 0;  // stacks that have their guard page
};

// Saves where the caller is in *save, and goes on where `load` was saved.
extern "C" void kittens_sim_switch(void** save, void* load);

}  // namespace kittens::sim
