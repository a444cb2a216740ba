#include "sim/race/copies.hpp"

namespace kittens::sim::race {
namespace {

uint32_t next(thread& t, agent& work, const actor& as) {
  if (work.actor < 0) work.actor = t.in.new_actor(as);
  return ++work.issued;
}

}  // namespace

void agent::close() {
  constexpr size_t kMostKept = 64;  // more than a wait can leave under way
  if (groups.size() == kMostKept) groups.erase(groups.begin(), groups.begin() + kMostKept / 2);
  groups.push_back(issued);
}

uint32_t agent::over(int groups_under_way) const {
  const int closed = static_cast<int>(groups.size()) - groups_under_way;
  return closed > 0 ? groups[closed - 1] : 0;
}

void start_copy(thread& t, const void* dst, int64_t bytes) {
  const uint32_t time = next(t, t.copies, {actor_kind::copy, t.rank, t.number, 1, t.rank});
  t.in.access_agent(t, {t.copies.actor, time, true, false}, t.rank, t.in.offset_of(t, dst), bytes);
  ++t.time;
}

agent_access start_load(thread& t, agent& loads, int rank, int64_t barrier) {
  const uint32_t time = next(t, loads, {actor_kind::load, rank, t.number, 1, t.rank, barrier});
  return {loads.actor, time, true, true};
}

agent_access start_store(thread& t) {
  const uint32_t time = next(t, t.stores, {actor_kind::store, t.rank, t.number, 1, t.rank});
  return {t.stores.actor, time, false, true};
}

void wait_for(thread& t, const agent& work, int groups_under_way) {
  if (work.actor >= 0) t.past.seen.raise(work.actor, work.over(groups_under_way));
}

}  // namespace kittens::sim::race
