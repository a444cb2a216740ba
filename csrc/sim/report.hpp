// The text of a report.
#pragma once

#include <string>
#include <vector>

#include "sim/api.hpp"
#include "sim/trace.hpp"

namespace kittens::sim {

class scheduler;

// What a block found wrong. Plain data, because the fiber that writes it never runs again, and so
// destroys nothing.
struct finding {
  const char* kind = nullptr;  // "DEADLOCK", "BARRIER" …; null: nothing
  char text[512] = "";
  call_site site;  // with an empty file: no particular line
  trace where;
};

// `0-15, 20`, of ascending numbers; the first few ranges of many.
std::string describe_ranges(const std::vector<int>& numbers);

// The whole report: the finding, then what each thread of the block waits for, and where.
std::string compose_report(const finding& f, const void* kernel, const position& block,
                           const position& grid, scheduler& threads);

}  // namespace kittens::sim
