// What the threads and the hardware beside them do, one after the other: a trace of one block (or
// of its cluster) for chrome://tracing and ui.perfetto.dev.
//
// Time is counted in steps of the simulator, not in cycles: a step is one switch from thread to
// thread, one wait, one wake-up, one start or end of a copy or product. So the order of things is
// what a timeline shows, for the policy that it was made with; their lengths mean nothing.
//
// A warp's row has "runs" while one of its lanes is on the core, and the name of a barrier while
// all of its lanes wait. Copies (TMA) and products (wgmma) under way have rows of their own, as
// many as there were at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/fiber.hpp"
#include "sim/trace.hpp"

namespace kittens::sim {

struct grid_launch;

class timeline {
 public:
  // `warps`: of each block.
  timeline(int blocks, int warps, int block_threads);

  // What happens to a fiber:
  void runs(const fiber& f);  // it is switched to
  void waits(const fiber& f, const waitable& on, call_site site);
  void wakes(const fiber& f);
  void exits(const fiber& f);

  // Work beside the fibers, from its start to its end. `row`: what does it, e.g. "TMA".
  using work = int;
  work begin(int rank, const std::string& row, std::string name, call_site site,
             const trace& where);
  void end(work w);

  // Appends it to the file that was asked for. `first`: the place of the block of rank 0.
  void write(const grid_launch& launch, const position& first, const std::string& report);
  // The same for a launch without the block that was asked for.
  static void write_missing(const grid_launch& launch);

 private:
  struct span {
    int rank;
    std::string row;
    int number;  // of the row, among several of this name, from 0
    std::string name;
    uint64_t start, end;
    call_site site;
    trace where;
    bool is_waiting = false;
  };
  struct warp {
    int rank = 0, index = 0;
    int alive = 0, waiting = 0;  // lanes
    int waits = -1;              // the span of all lanes' wait, while it lasts
    const waitable* on = nullptr;
    call_site site;
    trace where;
  };

  static constexpr uint64_t kOpen = ~uint64_t{0};

  static std::string warp_row(const warp& w);
  int add(int rank, std::string row, std::string name, call_site site, const trace& where);
  void open_wait(warp& w);
  void close_wait(warp& w);
  void spread_rows();

  uint64_t now_ = 0;  // steps
  std::vector<warp> warps_;
  std::vector<span> spans_;
  int running_ = -1;       // the span of the warp that runs
  int running_warp_ = -1;  // of warps_
};

}  // namespace kittens::sim
