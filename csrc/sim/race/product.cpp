#include "sim/race/product.hpp"

#include <algorithm>
#include <array>

#include "sim/tensor_core.hpp"

namespace kittens::sim::race {

void product_start::add(thread& t) {
  if (threads_.empty()) {
    site_ = t.in.places().number(t.called);
    threads_.reserve(kWarpgroupThreads);
  }
  threads_.push_back({t.past, t.actor, t.number, t.time, t.fenced_time});
  ++t.time;
}

history product_start::common() const {
  const history& first = threads_[0].past;
  const bool is_shared = std::all_of(threads_.begin(), threads_.end(), [&](const snapshot& s) {
    return s.past.seen.contents() == first.seen.contents() &&
           s.past.fenced.contents() == first.fenced.contents() &&
           s.past.ended.contents() == first.ended.contents();
  });
  if (is_shared) return first;  // of its own times, one warp knows nothing of another's
  std::array<gathering, kWarpgroupThreads / 32> warps;
  for (const snapshot& s : threads_) {
    warps[s.number / 32 % warps.size()].add(s.past, s.actor, s.time, s.fenced_time);
  }
  history result = warps[0].sum();
  for (const gathering& w : warps) {
    result.seen.meet(w.sum().seen);
    result.fenced.meet(w.sum().fenced);
    result.ended.meet(w.sum().ended);
  }
  return result;
}

agent_access product_agent::next(thread& t) {
  if (actor_ < 0) {
    const int first = t.number / kWarpgroupThreads * kWarpgroupThreads;
    actor_ = t.in.new_actor({actor_kind::product, t.rank, first, kWarpgroupThreads, t.rank});
  }
  return {actor_, ++issued_, false, true};
}

void product_agent::wait(thread& t, uint32_t products) {
  if (over_.at(actor_) != products) {
    over_ = {};
    over_.raise(actor_, products);
  }
  t.past.seen.join(over_);
}

namespace {

void find_bounds(thread& t) {
  t.loans_from = t.loans_to = nullptr;
  for (const loan& l : t.loans) {
    if (t.loans_from == nullptr || l.from < t.loans_from) t.loans_from = l.from;
    if (l.from + l.bytes > t.loans_to) t.loans_to = l.from + l.bytes;
  }
}

}  // namespace

void lend(thread& t, const void* registers, int64_t bytes) {
  t.loans.push_back(
      {static_cast<const uint8_t*>(registers), bytes, t.in.places().number(t.called)});
  find_bounds(t);
}

void give_back(thread& t, const void* registers) {
  std::erase_if(t.loans, [&](const loan& l) { return l.from == registers; });
  find_bounds(t);
}

}  // namespace kittens::sim::race
