// What is watched of a launch, where its options ask for it: facts.hpp of all its blocks, and
// timeline.hpp of one.
#pragma once

#include <cstdint>
#include <string>

#include "sim/cluster.hpp"
#include "sim/facts.hpp"

namespace kittens::sim {

class launch_watch {
 public:
  // `row_clusters`: the clusters along x.
  launch_watch(const grid_launch& launch, int64_t row_clusters);

  // Runs a cluster, the index-th of the grid, whose block of rank 0 is at `first`. Returns the
  // report, or nothing.
  std::string run(cluster& c, int64_t index, const position& first);
  // Writes what is complete only now. `is_right`: nothing was reported.
  void finish(bool is_right) const;

 private:
  const grid_launch& launch_;
  const int warps_;          // of a block
  int64_t traced_ = -1;      // the cluster of the traced block; −1: none
  bool is_missing_ = false;  // that block
  launch_facts facts_;
};

}  // namespace kittens::sim
