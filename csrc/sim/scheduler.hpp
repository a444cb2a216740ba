// Which fiber of a cluster runs next. One OS thread runs a cluster; a fiber runs until it waits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/async_work.hpp"
#include "sim/fiber.hpp"
#include "sim/options.hpp"
#include "sim/random.hpp"
#include "sim/ready_queue.hpp"

namespace kittens::sim {

// What fibers wait for. A deadlock report asks it what it is, and how far it has come.
class waitable {
 public:
  virtual std::string describe() const = 0;  // `barrier 3: 64 of 128 threads have arrived`

 protected:
  ~waitable() = default;
};

class timeline;

class scheduler {
 public:
  // `beside`: the work that goes on beside the fibers, some of it at a switch from one to the next.
  scheduler(policy p, random_sequence& random, async_work& beside)
      : policy_(p), ready_(p, random), beside_(beside) {}

  // Makes the fibers of some blocks, all ready, each of which will run `entry` on a stack of
  // `memory`. `blocks`: what the threads of each block know.
  // `traced`: what is told of them, or null.
  void start(std::span<const thread_view> blocks, stacks& memory, void (*entry)(),
             timeline* traced);

  // Runs fibers until none is ready, or one abandons the cluster. From outside of the fibers.
  void run_ready();
  // Notes the call stack of each fiber that waits. From outside of the fibers.
  void trace_waiting();

  // From inside of a fiber:
  bool is_running() const { return current_ != nullptr; }  // whether this is inside of one
  fiber& current() { return *current_; }
  void wait(const waitable& on, call_site site);  // until someone makes this fiber ready
  void yield();                                   // lets the others run
  [[noreturn]] void exit();                       // the thread ends
  [[noreturn]] void abandon();                    // the cluster ends: no fiber runs again

  void make_ready(fiber& f);
  std::span<fiber> fibers() { return fibers_; }
  int alive() const { return alive_; }
  uint64_t wakeups() const { return wakeups_; }  // and exits: a measure of progress

 private:
  void leave();  // the current fiber, for the next one, or for run_ready when there is none
  void switch_from(void** save, fiber& next);
  void trace_when_asked(fiber& mine);

  const policy policy_;
  ready_queue ready_;
  async_work& beside_;
  std::vector<fiber> fibers_;
  fiber* current_ = nullptr;
  void* outside_ = nullptr;  // where run_ready goes on
  int alive_ = 0;
  uint64_t wakeups_ = 0;
  bool tracing_ = false;
  timeline* traced_ = nullptr;
};

}  // namespace kittens::sim
