// The text of what race mode has found.
#pragma once

#include <string>
#include <vector>

#include "sim/race/detector.hpp"
#include "sim/trace.hpp"

namespace kittens::sim::race {

// `actors`: all of the cluster's, by number. `cluster_blocks`: 1 leaves ranks out of the text.
struct report_context {
  const std::vector<actor>& actors;
  const sites& places;
  int cluster_blocks;
};

// The findings in an order that depends on the source alone: the first few, and how many more.
std::string compose(const std::vector<const finding*>& findings, const report_context& in);

}  // namespace kittens::sim::race
