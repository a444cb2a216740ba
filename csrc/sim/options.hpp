// What can be chosen about a simulation: "eager", "lazy" or "random:SEED", ",threads=N",
// ",residents=N",
// ",race",
// and which files are to be written about its launches: ",facts=FILE", ",trace=FILE,block=N".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kittens::sim {

// When asynchronous work is done, and in which order threads and blocks run.
//   eager   work at once; threads and blocks in ascending order
//   lazy    work when someone waits for it; threads and blocks in descending order
//   random  work at any time; threads and blocks in a random order, the same for the same seed
// Each shows mistakes that the others hide.
enum class policy { eager, lazy, random };

struct options {
  sim::policy policy = policy::eager;
  uint64_t seed = 1;         // of policy::random
  int os_threads = 0;        // cores to spread blocks over; 0: all
  int residents = 0;         // clusters that run at one time, at most, as where other kernels have
                             // the rest of the device; 0: as many as the device holds
  bool race = false;         // look for accesses to shared memory that nothing orders
  double spin_seconds = 10;  // after so long with threads that only spin, a launch is reported
  std::string facts;         // the file for what its launches do (facts.hpp); empty: none
  std::string trace;         // the file for the timeline of one block (timeline.hpp); empty: none
  int64_t trace_block = 0;   // which one: x + grid.x · (y + grid.y · z)
};

// Reads e.g. "random:7,threads=2,spin=0.5,trace=pipeline.json"; throws host::error when it is none
// of ours.
options parse_options(std::string_view text);
std::string to_string(const options& o);

// The options of this thread's launches to come: from the environment's KITTENS_SIM, until set.
options current_options();
void set_options(const options& o);

}  // namespace kittens::sim
