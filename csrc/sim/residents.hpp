// The clusters of a grid that run at one time: on an OS thread each, of which as many go on as
// there are cores. A cluster that only spins may wait for another one, so it lets that have its
// core, and one more may start, until as many run as the device would hold. So blocks may wait for
// each other in global memory as far as they do on the device: all of a wave are there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/cluster.hpp"

namespace kittens::sim {

class residents {
 public:
  // `work`: what each OS thread does: takes steps, and runs a cluster for each.
  residents(const grid_launch& launch, int64_t clusters, std::function<void()> work);

  // Until all of the work is done.
  void run();

  // From `work`: the next of the grid's steps, of which each is taken once. May let others go
  // first.
  int64_t take_step();
  // … after a cluster. `was_spinning`: what its last pause returned, false without one.
  void end(bool was_spinning);
  void note_failure() { failed_ = true; }
  bool has_failed() const { return failed_; }

  // From inside of a cluster whose threads only spin: lets others go on first. The arguments: what
  // the pause before returned, and whether it has done anything else since. Returns true.
  bool pause(bool was_spinning, bool has_worked);
  // Clusters that began, ended, or did something else than spin: a measure of progress.
  uint64_t events() const { return events_; }
  // Whether a cluster goes on that has not paused yet, other than the calling one.
  bool others_work(bool is_spinning) const { return working_ > (is_spinning ? 0 : 1); }
  // ` (4 of the grid's 9 blocks run at one time)`, where that is less than all.
  void describe(char* text, size_t bytes) const;

 private:
  void start_thread();
  void begin_turn();
  void end_turn();

  const grid_launch& launch_;
  const int64_t clusters_;
  const std::function<void()> work_;
  int64_t cores_, most_;  // clusters that go on, and that run at one time
  std::atomic<int64_t> next_ = 0;
  std::atomic<int64_t> working_ = 0;
  std::atomic<uint64_t> events_ = 0;
  std::atomic<bool> failed_ = false;

  std::mutex mutex_;
  std::condition_variable turn_;
  int64_t last_ticket_ = 0, allowed_ = 0;  // tickets up to `allowed` have had, or have, their turn
  std::vector<std::thread> threads_;
  int64_t count_ = 1;  // of all threads: these, and the one that launches
};

}  // namespace kittens::sim
