// The sixteen barriers of a block. Number 0 is sync_block's.
#pragma once

#include <array>
#include <bitset>
#include <string>
#include <vector>

#include "sim/race/clock.hpp"
#include "sim/scheduler.hpp"

namespace kittens::sim {

class block;

class barrier final : public waitable {
 public:
  static constexpr int kCount = 16;

  void set_id(int id) { id_ = id; }
  // The current thread arrives, and waits if it is to. Returns when it may go on.
  void arrive(block& in, int threads, bool waits, call_site site);
  std::string describe() const override;

 private:
  // Where the lanes of a warp came from in this phase: they must come together.
  struct warp_arrival {
    bool any = false;
    int lane = 0;  // the first of them
    call_site site;
  };

  std::string name() const { return id_ == 0 ? "sync_block" : "barrier " + std::to_string(id_); }
  void check(block& in, int threads, call_site site);
  void complete(scheduler& s);

  int id_ = 0;
  int expected_ = 0, arrived_ = 0;  // threads of this phase
  call_site first_site_;            // of this phase's first arrival, which set expected_
  std::bitset<host::kMaxBlockThreads> who_;
  std::array<warp_arrival, host::kMaxBlockThreads / 32> warps_;
  std::vector<fiber*> waiting_;
  race::gathering order_;  // what those know that have arrived
};

}  // namespace kittens::sim
