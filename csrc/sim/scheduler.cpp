#include "sim/scheduler.hpp"

#include <cstdlib>

#include "sim/timeline.hpp"

namespace kittens::sim {

constinit thread_local const thread_view* self = nullptr;

void scheduler::start(std::span<const thread_view> blocks, stacks& memory, void (*entry)(),
                      timeline* traced) {
  traced_ = traced;
  const int block_threads = blocks[0].block_threads, block_warps = (block_threads + 31) / 32;
  const int threads = static_cast<int>(blocks.size()) * block_threads;
  fibers_ = std::vector<fiber>(threads);
  ready_.start(threads, static_cast<int>(blocks.size()) * block_warps);
  alive_ = threads;
  for (int i = 0; i < threads; ++i) {
    const int rank = i / block_threads;
    fiber& f = fibers_[i];
    f.view = blocks[rank];
    f.view.thread = i % block_threads;
    f.queue_warp = rank * block_warps + f.warp();
    f.stack_pointer = memory.prepare(i, entry);
  }
  for (int i = 0; i < threads; ++i) {
    make_ready(fibers_[policy_ == policy::lazy ? threads - 1 - i : i]);
  }
}

void scheduler::make_ready(fiber& f) {
  if (f.ready || f.exited) return;
  if (f.waits_for != nullptr) {
    ++wakeups_;
    if (traced_ != nullptr) traced_->wakes(f);
  }
  ready_.push(f);
}

void scheduler::switch_from(void** save, fiber& next) {
  if (traced_ != nullptr && !tracing_) traced_->runs(next);
  current_ = &next;
  self = &next.view;
  kittens_sim_switch(save, next.stack_pointer);
}

void scheduler::leave() {
  fiber& mine = *current_;
  if (policy_ == policy::random) beside_.maybe_do_one();
  fiber* next = ready_.pop();
  if (next == &mine) return;
  if (next != nullptr) {
    switch_from(&mine.stack_pointer, *next);
  } else {
    kittens_sim_switch(&mine.stack_pointer, outside_);
  }
  trace_when_asked(mine);
}

void scheduler::trace_when_asked(fiber& mine) {
  while (tracing_) {
    mine.where = trace::capture();
    kittens_sim_switch(&mine.stack_pointer, outside_);
  }
}

void scheduler::wait(const waitable& on, call_site site) {
  fiber& mine = *current_;
  mine.waits_for = &on;
  mine.site = site;
  if (traced_ != nullptr) traced_->waits(mine, on, site);
  leave();
  mine.waits_for = nullptr;
}

void scheduler::yield() {
  ready_.let_others(*current_);
  make_ready(*current_);
  leave();
}

void scheduler::exit() {
  current_->exited = true;
  if (traced_ != nullptr) traced_->exits(*current_);
  ++wakeups_;
  --alive_;
  leave();
  std::abort();  // not reached: nobody makes an exited fiber ready
}

void scheduler::abandon() {
  fiber& mine = *current_;
  kittens_sim_switch(&mine.stack_pointer, outside_);
  trace_when_asked(mine);  // it may be one that waits, and did some asynchronous work meanwhile
  std::abort();            // not reached: the cluster is over
}

void scheduler::run_ready() {
  if (fiber* next = ready_.pop()) switch_from(&outside_, *next);
  current_ = nullptr;
  self = nullptr;
}

void scheduler::trace_waiting() {
  tracing_ = true;
  for (fiber& f : fibers_) {
    if (f.waits_for != nullptr) switch_from(&outside_, f);
  }
  tracing_ = false;
  current_ = nullptr;
  self = nullptr;
}

}  // namespace kittens::sim
