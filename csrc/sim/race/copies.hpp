// Asynchronous copies, as race mode sees them.
#pragma once

#include <cstdint>

#include "sim/race/detector.hpp"

namespace kittens::sim::race {

// cp.async: in the proxy of ordinary accesses, but by an agent, until the thread waits for it.
void start_copy(thread& t, const void* dst, int64_t bytes);

// A bulk copy to shared memory, by the agent of the mbarrier at `barrier` of `rank`: it is over
// where that completes. Returns the agent's time of it. `loads`: made an actor, if it is none.
agent_access start_load(thread& t, agent& loads, int rank, int64_t barrier);
// A bulk copy out of shared memory, over (its reading) where the thread waits for its group.
agent_access start_store(thread& t);

// The thread waits until at most `groups_under_way` of its groups are.
void wait_for(thread& t, const agent& work, int groups_under_way);

}  // namespace kittens::sim::race
