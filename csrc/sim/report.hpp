// The text of a report.
#pragma once

#include <string>
#include <vector>

#include "sim/api.hpp"
#include "sim/trace.hpp"

namespace kittens::sim {

class scheduler;

// What was found wrong in a block. Plain data, because the fiber that writes it never runs again,
// and so destroys nothing.
struct finding {
  const char* kind = nullptr;  // "DEADLOCK", "BARRIER" …; null: nothing
  int rank = 0;                // of the block in its cluster
  char text[512] = "";
  call_site site;  // with an empty file: no particular line
  trace where;
};

// `0-15, 20`, of ascending numbers; the first few ranges of many.
std::string describe_ranges(const std::vector<int>& numbers);

struct block_place {
  position block, grid;
  int rank = 0, cluster_blocks = 1;
};

// `\n  in kernel<…>, block (0, 0, 0) of (4, 1, 1)`.
std::string describe_place(const void* kernel, const block_place& place);

// The whole report: the finding, then what each thread of the cluster waits for, and where.
std::string compose_report(const finding& f, const void* kernel, const block_place& place,
                           scheduler& threads);

}  // namespace kittens::sim
