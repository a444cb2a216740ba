#include "sim/mbarrier.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sim/block.hpp"
#include "sim/bulk_api.hpp"
#include "sim/race/race.hpp"
#include "sim/random.hpp"

namespace kittens::sim {
namespace {

// PTX ISA, mbarrier: the ranges of the counts.
constexpr int64_t kMaxCount = (1 << 20) - 1;

int64_t offset_of(const void* p) { return static_cast<const uint8_t*>(p) - self->shared; }

mbarrier& barrier_at(const void* p, const char* operation, call_site site) {
  check_shared(operation, p, sizeof(uint64_t), site);
  race::access_barrier(self->cluster_rank, offset_of(p), false);
  return block::running().mbarriers().find(offset_of(p), operation, site);
}

}  // namespace

uint64_t mbarrier::token() const { return hash(static_cast<uint64_t>(offset_) + 1); }

uint8_t* mbarrier::word() const { return in_.shared() + offset_; }

void mbarrier::fail(const origin& from, const char* format, ...) const {
  char text[384];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const int rank = in_.rank();
  char place[64];
  std::snprintf(place, sizeof place,
                in_.in_cluster().size() > 1 ? "offset %lld of rank %d" : "offset %lld",
                static_cast<long long>(offset_), rank);
  in_.fail_at("MBARRIER", from.site, from.where != nullptr ? *from.where : trace::capture(),
              "mbarrier at %s: %s", place, text);
}

void mbarrier::check(const char* operation, const origin& from) const {
  if (!alive_) fail(from, "%s, but it was invalidated", operation);
  const uint64_t expected = token();
  if (std::memcmp(word(), &expected, sizeof expected) != 0) {
    fail(from, "%s, but its 8 bytes have been written over since mbarrier_init", operation);
  }
}

void mbarrier::init(int arrivals, call_site site) {
  if (alive_) fail({site}, "mbarrier_init, but it is initialised, and not invalidated since");
  if (arrivals < 1 || arrivals > kMaxCount) {
    fail({site}, "mbarrier_init: arrivals must be 1 to %lld, got %d",
         static_cast<long long>(kMaxCount), arrivals);
  }
  alive_ = true;
  fenced_ = false;
  initialiser_ = self->thread;
  expected_ = missing_ = arrivals;
  bytes_ = phase_ = 0;
  last_phase_.assign(self->block_threads, kNever);
  const uint64_t value = token();
  std::memcpy(word(), &value, sizeof value);
}

void mbarrier::invalidate(call_site site) {
  if (!waiting_.empty()) {
    fail({site}, "mbarrier_invalidate by thread %d, but thread %d waits for it", self->thread,
         waiting_[0].by->view.thread);
  }
  alive_ = false;
  poison(word(), sizeof(uint64_t));
}

void mbarrier::fence(int thread) {
  if (initialiser_ == thread) fenced_ = true;
}

void mbarrier::check_fenced(const char* operation, const origin& from) {
  if (fenced_) return;
  fail(from, "%s, but thread %d, which initialised it, has not called fence_mbarrier_init",
       operation, initialiser_);
}

void mbarrier::arrive(int count, const origin& from) {
  race::release(self->race, coming_);
  count_arrivals(count, from);
}

void mbarrier::arrive_from_other_block(int count, scope of, const origin& from) {
  if (of == scope::cluster) {
    race::release(self->race, coming_from_others_);
  } else if (self->race != nullptr) {
    ended_.join_ended(self->race->now());
    ++self->race->time;
  }
  count_arrivals(count, from);
}

void mbarrier::count_arrivals(int count, const origin& from) {
  if (count < 1 || count > kMaxCount) {
    fail(from, "mbarrier_arrive: count must be 1 to %lld, got %d",
         static_cast<long long>(kMaxCount), count);
  }
  if (count > missing_) {
    fail(from, "%d more arrivals than the %d expected in a phase: %d were missing, %d came",
         count - missing_, expected_, missing_, count);
  }
  missing_ -= count;
  complete_if_all();
  if (missing_ == 0 && bytes_ < 0) {
    fail(from, "%lld bytes more than expected came in phase %lld", static_cast<long long>(-bytes_),
         static_cast<long long>(phase_));
  }
}

void mbarrier::expect(int64_t bytes, const origin& from) {
  if (bytes < 0 || bytes > kMaxCount || bytes_ + bytes > kMaxCount) {
    fail(from, "at most %lld bytes can be expected in a phase, got %lld and %lld before",
         static_cast<long long>(kMaxCount), static_cast<long long>(bytes),
         static_cast<long long>(bytes_));
  }
  bytes_ += bytes;
  complete_if_all();
}

void mbarrier::complete_bytes(int64_t bytes, uint32_t order, const origin& from) {
  check("a copy of this line completes here", from);
  if (order > 0) coming_.raise(loads_.actor, order);
  bytes_ -= bytes;
  complete_if_all();
  if (bytes_ < -kMaxCount || (missing_ == 0 && bytes_ < 0)) {
    fail(from, "%lld bytes more than expected came in phase %lld, the last by a copy of this line",
         static_cast<long long>(-bytes_), static_cast<long long>(phase_));
  }
}

void mbarrier::complete_if_all() {
  if (missing_ > 0 || bytes_ != 0) return;
  missing_ = expected_;
  ++phase_;
  over_before_ = over_in_cluster_;
  over_ = coming_.sum();
  over_.join_ended(ended_);
  over_in_cluster_ = over_;
  over_.join_ended(coming_from_others_.sum());
  over_in_cluster_.join(coming_from_others_.sum());
  for (const waiter& w : std::exchange(waiting_, {})) {
    race::acquire(w.by->view.race, w.of == scope::cluster ? over_in_cluster_ : over_);
    in_.threads().make_ready(*w.by);
  }
}

// The phase that a parity stands for, as the hardware has it: the current one or the one before. A
// thread that knows that all phases before this one are over has been right to ask so. If one that
// does not comes earlier, or others later, the same parity stands for a phase that is two before:
// race mode reports that, under whichever policy it sees the phases so far apart.
int64_t mbarrier::phase_of(uint32_t parity, call_site site) {
  if (parity > 1) fail({site}, "parity must be 0 or 1, got %u", parity);
  const int64_t phase = (phase_ & 1) == parity ? phase_ : phase_ - 1;
  const bool has_waited = last_phase_[self->thread] >= phase - 1;
  if (self->race != nullptr && phase >= 1 && !has_waited &&
      !self->race->now().includes(phase == phase_ ? over_in_cluster_ : over_before_)) {
    fail({site},
         "parity %u of thread %d stands for phase %lld here, but nothing orders the end of phase "
         "%lld before: where that comes later, it stands for phase %lld",
         parity, self->thread, static_cast<long long>(phase), static_cast<long long>(phase - 1),
         static_cast<long long>(phase - 2));
  }
  return phase;
}

bool mbarrier::test(uint32_t parity, call_site site) {
  const int64_t phase = phase_of(parity, site);
  if (phase_ <= phase) return false;
  last_phase_[self->thread] = phase;
  race::acquire(self->race, over_);
  return true;
}

void mbarrier::wait(uint32_t parity, scope of, call_site site) {
  const int64_t phase = phase_of(parity, site);
  last_phase_[self->thread] = phase;
  if (phase_ > phase) {
    return race::acquire(self->race, of == scope::cluster ? over_in_cluster_ : over_);
  }
  scheduler& s = in_.threads();
  waiting_.push_back({&s.current(), of});
  s.wait(*this, site);
}

std::string mbarrier::describe() const {
  std::string text = "mbarrier at offset " + std::to_string(offset_);
  if (in_.in_cluster().size() > 1) text += " of rank " + std::to_string(in_.rank());
  text += ", phase " + std::to_string(phase_) + " (parity " + std::to_string(phase_ & 1) +
          "): " + std::to_string(missing_) + " of " + std::to_string(expected_) + " arrivals and " +
          std::to_string(bytes_) + " bytes are missing";
  return text;
}

mbarrier& mbarrier_table::find(int64_t offset, const char* operation, call_site site) {
  const auto found = barriers_.find(offset);
  if (found == barriers_.end()) {
    in_.fail("MBARRIER", site, "%s by thread %d: no mbarrier was initialised at offset %lld",
             operation, self->thread, static_cast<long long>(offset));
  }
  found->second.check(operation, {site});
  return found->second;
}

mbarrier& mbarrier_table::find_or_make(int64_t offset) {
  return barriers_.try_emplace(offset, in_, offset).first->second;
}

void mbarrier_table::fence(int thread) {
  for (auto& [offset, b] : barriers_) b.fence(thread);
}

void mbarrier_init(void* barrier, int arrivals, call_site site) {
  KITTENS_RACE_CALL("mbarrier_init", site);
  check_shared("mbarrier_init", barrier, sizeof(uint64_t), site);
  race::access_barrier(self->cluster_rank, offset_of(barrier), true);
  block::running().mbarriers().find_or_make(offset_of(barrier)).init(arrivals, site);
}

void mbarrier_invalidate(void* barrier, call_site site) {
  KITTENS_RACE_CALL("mbarrier_invalidate", site);
  barrier_at(barrier, "mbarrier_invalidate", site).invalidate(site);
  race::access_barrier(self->cluster_rank, offset_of(barrier), true);
}

void fence_mbarrier_init() { block::running().mbarriers().fence(self->thread); }

void mbarrier_arrive(void* barrier, int count, call_site site) {
  KITTENS_RACE_CALL("mbarrier_arrive", site);
  barrier_at(barrier, "mbarrier_arrive", site).arrive(count, {site});
}

void mbarrier_expect_bytes(void* barrier, int bytes, call_site site) {
  KITTENS_RACE_CALL("mbarrier_expect_bytes", site);
  barrier_at(barrier, "mbarrier_expect_bytes", site).expect(bytes, {site});
}

void mbarrier_arrive_expect_bytes(void* barrier, int bytes, call_site site) {
  KITTENS_RACE_CALL("mbarrier_arrive_expect_bytes", site);
  mbarrier& b = barrier_at(barrier, "mbarrier_arrive_expect_bytes", site);
  b.expect(bytes, {site});
  b.arrive(1, {site});
}

namespace {

void arrive_at_block(const char* name, void* barrier, int block_rank, int count, scope of,
                     call_site site) {
  check_shared(name, barrier, sizeof(uint64_t), site);
  block& mine = block::running();
  if (block_rank < 0 || block_rank >= mine.in_cluster().size()) {
    mine.fail("CLUSTER", site, "%s by thread %d: rank %d is not in the cluster of %d blocks", name,
              self->thread, block_rank, mine.in_cluster().size());
  }
  block& other = mine.in_cluster().block_at(block_rank);
  if (other.alive() == 0) {
    mine.fail(
        "CLUSTER", site,
        "%s by thread %d: all threads of rank %d have exited, and its shared memory with them",
        name, self->thread, block_rank);
  }
  mbarrier& b = other.mbarriers().find(offset_of(barrier), name, site);
  if (block_rank != mine.rank()) b.check_fenced(name, {site});
  race::access_barrier(block_rank, offset_of(barrier), false);
  if (block_rank == mine.rank()) {
    b.arrive(count, {site});
  } else {
    b.arrive_from_other_block(count, of, {site});
  }
}

}  // namespace

void mbarrier_arrive_remote(void* barrier, int block_rank, int count, call_site site) {
  KITTENS_RACE_CALL("mbarrier_arrive_remote", site);
  arrive_at_block("mbarrier_arrive_remote", barrier, block_rank, count, scope::block, site);
}

void mbarrier_arrive_cluster(void* barrier, int block_rank, int count, call_site site) {
  KITTENS_RACE_CALL("mbarrier_arrive_cluster", site);
  arrive_at_block("mbarrier_arrive_cluster", barrier, block_rank, count, scope::cluster, site);
}

bool mbarrier_test(void* barrier, uint32_t parity, call_site site) {
  KITTENS_RACE_CALL("mbarrier_test", site);
  if (barrier_at(barrier, "mbarrier_test", site).test(parity, site)) return true;
  spin(site);  // whoever tests in a loop waits for others
  return false;
}

void mbarrier_wait(void* barrier, uint32_t parity, call_site site) {
  KITTENS_RACE_CALL("mbarrier_wait", site);
  barrier_at(barrier, "mbarrier_wait", site).wait(parity, scope::block, site);
}

void mbarrier_wait_cluster(void* barrier, uint32_t parity, call_site site) {
  KITTENS_RACE_CALL("mbarrier_wait_cluster", site);
  barrier_at(barrier, "mbarrier_wait_cluster", site).wait(parity, scope::cluster, site);
}

}  // namespace kittens::sim
