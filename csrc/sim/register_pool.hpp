// The registers of a block, which its warps pass to each other (setmaxnreg).
#pragma once

#include <string>
#include <vector>

#include "sim/scheduler.hpp"

namespace kittens::sim {

class block;

class register_pool {
 public:
  // As the launch gives them: to each thread the same, and all that the block's own warps get.
  void start(int block_threads);

  // The current thread's warp may use `count` per thread, more or fewer than before. Idempotent:
  // each lane of the warp calls.
  void raise(block& in, int count, call_site site);
  void lower(block& in, int count, call_site site);

 private:
  struct warp_share final : waitable {
    std::string describe() const override;

    const register_pool* pool = nullptr;
    int warp = 0;
    int count = 0;             // per thread, as it has them now
    int wanted = 0;            // … as it has asked for last
    std::vector<int> history;  // all that it has asked for
  };

  // Notes what the current warp asks for. False: another of its lanes was here before.
  bool note(block& in, warp_share& mine, const char* name, int count, call_site site);

  int total_ = 0, free_ = 0;
  std::vector<warp_share> warps_;
  std::vector<fiber*> waiting_;
};

}  // namespace kittens::sim
