#include "sim/collective.hpp"

#include <bit>
#include <cstring>

#include "sim/block.hpp"
#include "sim/bulk_api.hpp"
#include "sim/facts.hpp"
#include "sim/race/race.hpp"
#include "sim/random.hpp"
#include "sim/report.hpp"

namespace kittens::sim {

std::string describe_lanes(unsigned mask) {
  std::vector<int> lanes;
  for (int i = 0; i < 32; ++i) {
    if (mask >> i & 1) lanes.push_back(i);
  }
  return (lanes.size() == 1 ? "lane " : "lanes ") + describe_ranges(lanes);
}

void meeting::begin(const char* operation, int warp, unsigned mask, call_site site) {
  operation_ = operation;
  warp_ = warp;
  mask_ = mask;
  arrived_ = 0;
  site_ = site;
  contributions_ = {};
}

void meeting::add(fiber& f, void* contribution) {
  arrived_ |= 1u << f.lane();
  contributions_[f.lane()] = contribution;
  fibers_[f.lane()] = &f;
}

void meeting::complete(scheduler& s, work w) {
  if (w != nullptr) w(contributions_);
  for (int i = 0; i < 32; ++i) {
    if ((mask_ >> i & 1) && fibers_[i] != &s.current()) s.make_ready(*fibers_[i]);
  }
  arrived_ = 0;
}

std::string meeting::describe() const {
  return std::string(operation_) + " of warp " + std::to_string(warp_) + ": " +
         describe_lanes(arrived_) + " came, " + describe_lanes(mask_ & ~arrived_) + " did not";
}

void warp::start(int index, unsigned lanes) {
  index_ = index;
  lanes_ = lanes;
  exited_ = 0;
}

void warp::check_lanes(block& in, const char* operation, unsigned mask, call_site site) {
  const int lane = in.threads().current().lane();
  if ((mask >> lane & 1) == 0) {
    in.fail("DIVERGENCE", site, "lane %d of warp %d calls %s with mask 0x%08x, in which it is not",
            lane, index_, operation, mask);
  }
  if (const unsigned missing = mask & ~lanes_; missing != 0) {
    in.fail("DIVERGENCE", site, "%s in warp %d needs lanes %d to 31, but the block has %d threads",
            operation, index_, std::countr_zero(missing), self->block_threads);
  }
  if (const unsigned gone = mask & exited_; gone != 0) {
    in.fail("DIVERGENCE", site, "lane %d calls %s, but lane %d of its warp %d has exited (0x%08x)",
            lane, operation, std::countr_zero(gone), index_, gone);
  }
}

// The meeting that the current thread belongs to, begun if it is the first.
meeting& warp::find(block& in, const char* operation, unsigned mask, call_site site) {
  meeting* empty = nullptr;
  for (const auto& pointer : meetings_) {
    meeting& m = *pointer;
    if (m.is_empty()) empty = &m;
    if (m.is_empty() || (m.mask() & mask) == 0) continue;
    const bool is_same = m.operation() == operation || std::strcmp(m.operation(), operation) == 0;
    if (m.mask() == mask && m.site() == site && is_same) return m;
    in.fail(
        "DIVERGENCE", site,
        "lane %d of warp %d calls %s (mask 0x%08x), but lane %d called %s (mask 0x%08x) at %s:%d",
        in.threads().current().lane(), index_, operation, mask, std::countr_zero(m.arrived()),
        m.operation(), m.mask(), file_name(m.site().file), m.site().line);
  }
  if (empty == nullptr) empty = meetings_.emplace_back(std::make_unique<meeting>()).get();
  empty->begin(operation, index_, mask, site);
  return *empty;
}

void warp::meet(block& in, const char* operation, unsigned mask, void* contribution,
                meeting::work w, call_site site) {
  check_lanes(in, operation, mask, site);
  meeting& m = find(in, operation, mask, site);
  scheduler& s = in.threads();
  m.add(s.current(), contribution);
  if (m.is_complete()) {
    if (mask == lanes_ && self->facts != nullptr) self->facts->meet_warp();
    m.complete(s, w);
  } else {
    s.wait(m, site);
  }
}

void warp::leave(block& in) {
  const int lane = in.threads().current().lane();
  exited_ |= 1u << lane;
  for (const auto& pointer : meetings_) {
    const meeting& m = *pointer;
    if (m.is_empty() || (m.mask() >> lane & 1) == 0) continue;
    in.fail("DIVERGENCE", m.site(), "lane %d of warp %d exits, but lane %d waits for it in %s",
            lane, index_, std::countr_zero(m.arrived()), m.operation());
  }
}

namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

struct shuffled_lane {
  uint64_t given, taken;
  int from;
};

struct vote_lane {
  bool vote;
  unsigned result;
};

template <class Lane>
Lane& lane_at(const meeting::contributions& lanes, int i) {
  return *static_cast<Lane*>(lanes[i]);
}

void do_shuffle(const meeting::contributions& lanes) {
  for (int i = 0; i < 32; ++i) {
    auto& to = lane_at<shuffled_lane>(lanes, i);
    to.taken = lane_at<shuffled_lane>(lanes, to.from).given;
  }
}

void do_ballot(const meeting::contributions& lanes) {
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) votes |= unsigned{lane_at<vote_lane>(lanes, i).vote} << i;
  for (int i = 0; i < 32; ++i) lane_at<vote_lane>(lanes, i).result = votes;
}

void order_lanes(const meeting::contributions& lanes) {
  race::gathering order;
  for (void* lane : lanes) race::release(static_cast<race::thread*>(lane), order);
  for (void* lane : lanes) race::acquire(static_cast<race::thread*>(lane), order.sum());
}

void meet_warp(const char* operation, unsigned mask, void* contribution, meeting::work w,
               call_site site) {
  count(operation, nullptr, 0, site);
  block& b = block::running();
  b.current_warp().meet(b, operation, mask, contribution, w, site);
}

}  // namespace

// The only collective that orders memory. (The others exchange registers.)
void sync_warp(unsigned mask, call_site site) {
  const bool has_race = self->race != nullptr;
  meet_warp("sync_warp", mask, self->race, has_race ? &order_lanes : nullptr, site);
}

uint64_t shuffle(const char* name, uint64_t bits, int lane, call_site site) {
  shuffled_lane mine{bits, 0, lane};
  meet_warp(name, kAllLanes, &mine, &do_shuffle, site);
  return mine.taken;
}

unsigned ballot(const char* name, bool vote, call_site site) {
  vote_lane mine{vote, 0};
  meet_warp(name, kAllLanes, &mine, &do_ballot, site);
  return mine.result;
}

bool elect_one(call_site site) {
  meet_warp("elect_one", kAllLanes, nullptr, nullptr, site);
  const options& chosen = cluster::running().launch().chosen;
  const int warp = self->thread / 32, lane = self->thread % 32;
  switch (chosen.policy) {
    case policy::eager: return lane == 0;
    case policy::lazy: return lane == 31;
    default: return lane == static_cast<int>(hash(chosen.seed + warp) % 32);
  }
}

}  // namespace kittens::sim
