#include "sim/residents.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace kittens::sim {
namespace {

// Blocks that the device holds at one time. The H200's multiprocessors take 2048 threads each, 228
// KiB of shared memory, of which a block takes one more than it asks for, and 32 blocks. (What
// registers allow is not known here.)
int64_t count_resident_blocks(const grid_launch& launch) {
  constexpr int64_t kBlocks = 32, kThreads = 2048, kShared = 228 * 1024, kReserved = 1024;
  const int64_t of_one = std::min(
      {kBlocks, kThreads / launch.block_threads, kShared / (launch.shared_bytes + kReserved)});
  return of_one * host::kSimulatedMultiprocessors;
}

// Clusters that run at one time, at most.
int64_t count_residents(const grid_launch& launch, int64_t cores) {
  if (launch.chosen.residents != 0) return launch.chosen.residents;
  // With more cores than the device has room for, all of them have work all the same.
  return std::max(count_resident_blocks(launch) / launch.cluster_blocks, cores);
}

int64_t count_cores(const grid_launch& launch) {
  const int64_t all = launch.chosen.os_threads != 0
                          ? launch.chosen.os_threads
                          : std::max(1u, std::thread::hardware_concurrency());
  return launch.chosen.residents != 0 ? std::min<int64_t>(all, launch.chosen.residents) : all;
}

}  // namespace

residents::residents(const grid_launch& launch, int64_t clusters, std::function<void()> work)
    : launch_(launch),
      clusters_(clusters),
      work_(std::move(work)),
      cores_(std::min(count_cores(launch), clusters)),
      most_(count_residents(launch, cores_)),
      allowed_(cores_) {}

void residents::run() {
  for (int64_t i = 1; i < cores_; ++i) start_thread();
  begin_turn();
  work_();
  end_turn();
  for (;;) {  // until there are no more steps, threads start others
    std::vector<std::thread> started;
    {
      const std::lock_guard lock(mutex_);
      started.swap(threads_);
    }
    if (started.empty()) return;
    for (std::thread& t : started) t.join();
  }
}

void residents::start_thread() {
  const std::lock_guard lock(mutex_);
  if (count_ == most_) return;
  ++count_;
  threads_.emplace_back([this] {
    begin_turn();
    work_();
    end_turn();
  });
}

// First come, first served.
void residents::begin_turn() {
  std::unique_lock lock(mutex_);
  const int64_t mine = ++last_ticket_;
  turn_.wait(lock, [&] { return mine <= allowed_; });
}

void residents::end_turn() {
  {
    const std::lock_guard lock(mutex_);
    ++allowed_;
  }
  turn_.notify_all();
}

int64_t residents::take_step() {
  end_turn();
  begin_turn();
  const int64_t step = next_.fetch_add(1);
  if (step < clusters_) {
    ++working_;
    ++events_;
  }
  return step;
}

void residents::end(bool was_spinning) {
  if (!was_spinning) --working_;
  ++events_;
}

bool residents::pause(bool was_spinning, bool has_worked) {
  if (!was_spinning) --working_;
  if (has_worked) ++events_;
  if (next_ < clusters_ && !failed_) start_thread();
  end_turn();
  begin_turn();
  return true;
}

void residents::describe(char* text, size_t bytes) const {
  if (clusters_ <= most_) return;
  std::snprintf(text, bytes, " (%lld of the grid's %lld blocks run at one time)",
                static_cast<long long>(most_ * launch_.cluster_blocks),
                static_cast<long long>(clusters_ * launch_.cluster_blocks));
}

}  // namespace kittens::sim
