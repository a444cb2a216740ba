// The fibers of a cluster that can run, and which of them is next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/fiber.hpp"
#include "sim/options.hpp"
#include "sim/random.hpp"

namespace kittens::sim {

// Under policy::eager and lazy, the one that has been ready for longest.
//
// Under policy::random, some lane of the warp with the highest priority; the priorities are random,
// and one of them changes now and then. So one warp runs as far ahead as the barriers let it while
// others stand still, which is how a missing barrier shows; a fair choice among all lanes keeps the
// warps abreast and hides it. (Burckhardt et al., A randomized scheduler with probabilistic
// guarantees of finding bugs, 2010.)
class ready_queue {
 public:
  ready_queue(policy p, random_sequence& random) : policy_(p), random_(random) {}

  void start(int fibers, int warps);  // empty, with room for them
  void push(fiber& f);
  fiber* pop();                     // null when there is none
  void let_others(const fiber& f);  // f spins: its warp goes last

 private:
  static constexpr int kLanes = 32;
  static constexpr uint64_t kPopsPerChange = 256;

  struct warp {
    fiber* lanes[kLanes];
    int ready = 0;
    uint64_t priority = 0;
  };

  fiber* pop_first();
  fiber* pop_preferred();

  const policy policy_;
  random_sequence& random_;
  std::vector<fiber*> ring_;  // a power of two places, at least one for each fiber
  size_t first_ = 0, ready_ = 0;
  std::vector<warp> warps_;
};

}  // namespace kittens::sim
