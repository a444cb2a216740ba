// Runs a grid: its clusters over the cores, in an order that depends on the policy.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/api.hpp"
#include "sim/cluster.hpp"
#include "sim/options.hpp"
#include "sim/race/global.hpp"
#include "sim/race/hooks.hpp"
#include "sim/residents.hpp"
#include "sim/trace.hpp"
#include "sim/watch.hpp"

namespace kittens::sim {
namespace {

// Workspaces are kept for the next launch: as many as ran at once.
class workspace_pool {
 public:
  std::unique_ptr<workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<workspace>();
    std::unique_ptr<workspace> w = std::move(free_.back());
    free_.pop_back();
    return w;
  }
  void give_back(std::unique_ptr<workspace> w) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(w));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<workspace>> free_;
};

workspace_pool& pool() {
  static auto* const the_pool = new workspace_pool;  // threads may outlive static objects
  return *the_pool;
}

// The order in which clusters start: step i is cluster `at(i)`, each once. Race mode has one order
// for all policies, because the first cluster's report is the grid's.
class cluster_order {
 public:
  cluster_order(int64_t clusters, const options& o)
      : clusters_(clusters), policy_(o.race ? policy::eager : o.policy) {
    if (policy_ != policy::random) return;
    offset_ = static_cast<int64_t>(hash(o.seed) % static_cast<uint64_t>(clusters));
    stride_ = static_cast<int64_t>(hash(o.seed + 1) % static_cast<uint64_t>(clusters)) | 1;
    while (std::gcd(stride_, clusters) != 1) ++stride_;
  }

  int64_t at(int64_t step) const {
    if (policy_ == policy::eager) return step;
    if (policy_ == policy::lazy) return clusters_ - 1 - step;
    return static_cast<int64_t>((static_cast<__int128>(step) * stride_ + offset_) % clusters_);
  }

 private:
  int64_t clusters_;
  policy policy_;
  int64_t offset_ = 0, stride_ = 1;
};

class grid_run {
 public:
  explicit grid_run(grid_launch& launch)
      : launch_(launch),
        row_clusters_(launch.grid.x / launch.cluster_blocks),
        clusters_(row_clusters_ * launch.grid.y * launch.grid.z),
        order_(clusters_, launch.chosen),
        watch_(launch, row_clusters_),
        all_(launch, clusters_, [this] { work(); }) {
    launch.all = &all_;
  }

  // Returns the report, or nothing: the report of the earliest step, so that it is always the same.
  std::string run() {
    all_.run();
    watch_.finish(report_.empty());
    return report_;
  }

 private:
  // What each OS thread does.
  void work() {
    std::unique_ptr<workspace> memory = pool().take();
    // Steps before the first failure always run, so that the same one is always the first.
    for (int64_t step = all_.take_step(); step <= first_failure_ && step < clusters_;
         step = all_.take_step()) {
      const std::string report = run_cluster(order_.at(step), *memory);
      if (!report.empty()) note_failure(step, report);
    }
    pool().give_back(std::move(memory));
  }

  void note_failure(int64_t step, const std::string& report) {
    const std::lock_guard lock(mutex_);
    all_.note_failure();
    if (step > first_failure_) return;
    first_failure_ = step;
    report_ = report;
  }

  std::string run_cluster(int64_t index, workspace& memory) {
    const int64_t x = row_clusters_, y = launch_.grid.y;
    const position first{static_cast<int>(index % x) * launch_.cluster_blocks,
                         static_cast<int>(index / x % y), static_cast<int>(index / x / y)};
    const uint64_t seed = hash(launch_.chosen.seed) ^ static_cast<uint64_t>(index);
    cluster c(launch_, first, seed, memory);
    std::string report = watch_.run(c, index, first);
    all_.end(c.is_spinning());
    return report;
  }

  const grid_launch& launch_;
  const int64_t row_clusters_, clusters_;  // along x, and all
  const cluster_order order_;
  launch_watch watch_;
  std::atomic<int64_t> first_failure_ = std::numeric_limits<int64_t>::max();  // a step
  std::mutex mutex_;
  std::string report_;  // of the first failure
  residents all_;
};

}  // namespace

void run(const void* kernel, const host::launch_config& config, host::stream s,
         thread_function thread, const void* context) {
  if (!host::launchable(config)) {
    throw host::error(kernel_name(kernel) + ": " + host::why_not_launchable(config));
  }
  if (self != nullptr) {
    throw host::error(kernel_name(kernel) + ": a kernel cannot launch a kernel");
  }
  grid_launch launch;
  launch.kernel = kernel;
  launch.thread = thread;
  launch.context = context;
  launch.grid = {static_cast<int>(config.grid.x), static_cast<int>(config.grid.y),
                 static_cast<int>(config.grid.z)};
  launch.cluster_blocks = static_cast<int>(config.cluster);
  launch.block_threads = static_cast<int>(config.block.x);
  launch.shared_bytes = config.shared_bytes;
  launch.programmatic = config.programmatic;
  launch.constant = config.constant;
  launch.chosen = current_options();
  if (launch.chosen.race && !race::is_instrumented()) {
    throw host::error(kernel_name(kernel) +
                      ": race mode needs kernels compiled with -fsanitize=thread, as build_tools "
                      "does for _simulator_race.so and for programs with race=True");
  }
  launch.guards = current_guards();
  race::launch_trace trace;
  std::string report;
  if (launch.chosen.race) {
    launch.race = &trace;
    report = race::broken_promise(s, kernel, config);
  }
  if (report.empty()) report = grid_run(launch).run();
  if (!report.empty()) throw host::error(report);
  launch.chosen.race ? race::remember(s, kernel, std::move(trace)) : race::forget(s);
}

}  // namespace kittens::sim
