// Facts about a kernel's speed that need no GPU: how often it executes each function of the seam,
// which bytes these move, and how often lanes of a warp meet in one bank of shared memory.
//
// An instruction is what the lanes of a warp do at one place of the kernel (a call stack) for the
// n-th time since all of them last came together. So a warp's access is one access, as on a GPU.
// What does not pass the seam is not seen: arithmetic, and accesses through a C++ reference.
//
// Bank conflicts, as the memory of an SM works: 32 banks of 4 bytes. An access of 16 bytes a lane
// is four passes of 8 lanes (for ldmatrix: one for each matrix), one of 8 bytes two of 16 lanes, a
// narrower one a single pass. A pass takes as many wavefronts as it wants different words of one
// bank, at least one. (For wgmma and TMA, bytes are counted and no wavefronts.)
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/trace.hpp"

namespace kittens::sim {

struct grid_launch;

// Sums over executions of one place.
struct fact {
  int64_t instructions = 0;
  int64_t shared_bytes = 0;
  int64_t wavefronts = 0, passes = 0;  // without a conflict, a pass is one wavefront
  int64_t global_bytes = 0, sectors = 0;
  int64_t flops = 0;

  fact& operator+=(const fact& other);
};

// A place of the kernel that executes one function of the seam.
struct fact_place {
  const char* name = "";
  call_site site;
  trace where;

  friend bool operator==(const fact_place& a, const fact_place& b) {
    return a.name == b.name && a.where.pc == b.where.pc && a.site == b.site;
  }
  struct hasher {
    size_t operator()(const fact_place& p) const;
  };
};

// What the threads of one cluster do.
class fact_counter {
 public:
  // `warps`: of each block.
  fact_counter(int blocks, int warps);

  // The calling thread's part of an instruction; p is null when that touches no memory.
  void count_lane(const char* name, const void* p, int64_t bytes, call_site site);
  // An instruction that one thread executes for all.
  void count_work(const char* name, const fact& amounts, call_site site);
  // All lanes of the calling thread's warp are here, or all threads of its block.
  void meet_warp();
  void meet_block();
  // Everything, when all threads have ended.
  const std::unordered_map<fact_place, fact, fact_place::hasher>& finish();

 private:
  // The n-th time of each lane of a warp at one place.
  struct instruction {
    unsigned lanes = 0;
    bool is_memory = false, is_shared = false;
    int64_t bytes = 0;  // of a lane
    int64_t flops = 0;
    uintptr_t at[32] = {};  // offsets in shared memory, or addresses
  };
  struct warp_at_place {
    int times[32] = {};
    std::vector<instruction> instructions;
  };
  using warp_state = std::unordered_map<fact_place, warp_at_place, fact_place::hasher>;

  static fact evaluate(const instruction& i);
  void flush(warp_state& warp);

  const int warps_;
  std::vector<warp_state> states_;  // by block and warp
  std::unordered_map<fact_place, fact, fact_place::hasher> facts_;
};

// Those of all clusters of a launch.
class launch_facts {
 public:
  void add(fact_counter& cluster);
  // Appends them to the file that was asked for.
  void write(const grid_launch& launch) const;

 private:
  std::mutex mutex_;
  std::unordered_map<fact_place, fact, fact_place::hasher> facts_;
};

// Counts an instruction that one thread executes for all, where facts are asked for.
void count_work(const char* name, const fact& amounts, call_site site);

}  // namespace kittens::sim
