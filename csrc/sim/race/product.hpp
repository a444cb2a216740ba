// When the products of a warpgroup start, and when they are over.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/race/detector.hpp"

namespace kittens::sim::race {

// What the threads of a warpgroup knew when they asked for a product. Their warps need not be
// together: what is before the product is what all four warps know, each through any of its lanes.
class product_start {
 public:
  void add(thread& t);
  history common() const;
  uint32_t site() const { return site_; }

 private:
  struct snapshot {
    history past;
    int actor, number;
    uint32_t time, fenced_time;
  };
  std::vector<snapshot> threads_;
  uint32_t site_ = 0;  // of the first
};

// The tensor core of a warpgroup.
class product_agent {
 public:
  // The next product, asked for last by `t`.
  agent_access next(thread& t);
  // The thread knows that the first `products` are done.
  void wait(thread& t, uint32_t products);

 private:
  int actor_ = -1;
  uint32_t issued_ = 0;
  clock over_;  // how many are done: the same for all the threads that wait for them
};

// The thread has lent registers to a product; it has those back from `registers`.
void lend(thread& t, const void* registers, int64_t bytes);
void give_back(thread& t, const void* registers);

}  // namespace kittens::sim::race
