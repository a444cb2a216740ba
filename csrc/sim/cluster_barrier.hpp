// The barrier of a cluster: all threads of all its blocks, but those that have exited.
#pragma once

#include <string>
#include <vector>

#include "sim/race/clock.hpp"
#include "sim/scheduler.hpp"

namespace kittens::sim {

class cluster;

class cluster_barrier final : public waitable {
 public:
  void arrive(cluster& in, call_site site);  // the current thread
  void wait(cluster& in, call_site site);    // until all have arrived that the thread arrived with
  void leave(cluster& in);                   // the current thread exits
  bool was_passed() const { return phase_ > 1; }  // so that all blocks of the cluster run
  std::string describe() const override;

 private:
  void complete_if_all(cluster& in, int alive);

  int arrived_ = 0;     // threads of this phase that have not exited
  int threads_ = 0;     // that the phase needs, as of the last arrival
  uint64_t phase_ = 1;  // that arrivals belong to
  std::vector<fiber*> waiting_;
  // What those know that have arrived: in this phase, and in the one before.
  race::gathering order_, order_before_;
};

}  // namespace kittens::sim
