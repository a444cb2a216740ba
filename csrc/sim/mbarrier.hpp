// The mbarriers of a block: barriers in shared memory that count threads and bytes.
//
// The 8 bytes in shared memory hold a token only; what a barrier knows is here. So a kernel that
// writes over one is found at the barrier's next use.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/api.hpp"
#include "sim/race/detector.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace kittens::sim {

class block;

// Where an operation comes from. Asynchronous work brings the call stack that it was started with.
struct origin {
  call_site site;
  const trace* where = nullptr;  // null: the current thread's
};

// Of an arrival, or a wait: whose memory accesses it orders.
enum class scope { block, cluster };

class mbarrier final : public waitable {
 public:
  mbarrier(block& in, int64_t offset) : in_(in), offset_(offset) {}

  void init(int arrivals, call_site site);
  void invalidate(call_site site);
  void fence(int thread);  // makes the inits of `thread` visible to asynchronous copies
  void arrive(int count, const origin& from);
  void arrive_from_other_block(int count, scope of, const origin& from);
  void expect(int64_t bytes, const origin& from);
  // Of a copy, which race mode knows as the `order`th of loads().
  void complete_bytes(int64_t bytes, uint32_t order, const origin& from);
  // Whether the phase that `parity` stands for is over.
  bool test(uint32_t parity, call_site site);
  void wait(uint32_t parity, scope of, call_site site);
  // Reports a copy that is to complete here, or a remote arrival, before the init was fenced.
  void check_fenced(const char* operation, const origin& from);
  // Reports a use of it when it is not there any more, or was written over.
  void check(const char* operation, const origin& from) const;
  std::string describe() const override;
  int64_t offset() const { return offset_; }
  race::agent& loads() { return loads_; }  // who does the copies that complete here

 private:
  static constexpr int64_t kNever = -2;  // there is a phase −1: what a new barrier's parity 1 means

  uint64_t token() const;
  uint8_t* word() const;
  void count_arrivals(int count, const origin& from);
  void complete_if_all();
  int64_t phase_of(uint32_t parity, call_site site);
  [[noreturn]] [[gnu::format(printf, 3, 4)]] void fail(const origin& from, const char* format,
                                                       ...) const;

  block& in_;
  const int64_t offset_;
  bool alive_ = false, fenced_ = false;
  int initialiser_ = 0;              // thread
  int expected_ = 0, missing_ = 0;   // arrivals of each phase, and of the current one
  int64_t bytes_ = 0;                // expected in the current phase, less those that came
  int64_t phase_ = 0;                // the current one: how many are over
  std::vector<int64_t> last_phase_;  // that each thread waited for
  struct waiter {
    fiber* by;
    scope of;
  };
  std::vector<waiter> waiting_;
  // For race mode: what those know that have arrived, up to now and in the phases that are over. A
  // wait of a block's scope learns of other blocks' arrivals only that they have come.
  race::gathering coming_, coming_from_others_;
  race::history ended_;  // by arrivals of a block's scope from other blocks
  race::history over_, over_in_cluster_, over_before_;  // over_before_: without the last phase
  race::agent loads_;
};

class mbarrier_table {
 public:
  explicit mbarrier_table(block& in) : in_(in) {}

  // The barrier at `offset` of the block's shared memory, which must be there, and alive.
  mbarrier& find(int64_t offset, const char* operation, call_site site);
  mbarrier& find_or_make(int64_t offset);
  void fence(int thread);

 private:
  block& in_;
  std::map<int64_t, mbarrier> barriers_;  // by offset
};

}  // namespace kittens::sim
