// What to look for where an order is missing.
#pragma once

#include <string>

#include "sim/race/detector.hpp"

namespace kittens::sim::race {

// One of the two accesses of a finding: whose, and from where.
struct side {
  const actor& by;
  const site& where;
};

// `sync_block(), or a named barrier of the threads concerned`.
std::string advice(const finding& f, const side& earlier, const side& later);

}  // namespace kittens::sim::race
