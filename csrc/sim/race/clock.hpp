// What has happened before some moment: for each actor, up to which of its times.
//
// Actors are numbered: the threads of a cluster first, then its asynchronous agents. Threads that
// meet know the same afterwards, so clocks share their contents, and what has been joined once is
// remembered: a barrier of n threads costs in the order of n, not n².
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kittens::sim::race {

class clock {
 public:
  clock() = default;
  clock(const clock& other) : table_(other.table_) {
    if (table_ != nullptr) ++table_->references;
  }
  clock(clock&& other) noexcept : table_(std::exchange(other.table_, nullptr)) {}
  clock& operator=(clock other) noexcept {
    std::swap(table_, other.table_);
    return *this;
  }
  ~clock() {
    if (table_ != nullptr && --table_->references == 0) delete table_;
  }

  // Up to which time of `actor`; 0: nothing of it.
  uint32_t at(int actor) const {
    return table_ != nullptr && actor < static_cast<int>(table_->times.size())
               ? table_->times[actor]
               : 0;
  }
  // A number of its contents: clocks with the same number hold the same. 0: nothing.
  uint64_t contents() const { return table_ != nullptr ? table_->contents : 0; }

  void raise(int actor, uint32_t time);  // to at least `time`
  void join(const clock& other);         // what either knows
  void meet(const clock& other);         // what both know
  bool includes(const clock& other) const;

 private:
  // Times beyond the last are 0. The size is a multiple of kLanes.
  struct table {
    int references = 1;
    uint64_t contents = 0;
    std::vector<uint32_t> times;
  };
  static constexpr int kLanes = 8;

  static uint64_t new_contents();
  void own(size_t actors);  // makes the table this clock's alone, and so large

  table* table_ = nullptr;
};

// The orders that an access can stand in. `seen`: what happened before. `fenced`: what happened
// before a proxy fence that happened before, which is what asynchronous copies and products see of
// ordinary writes. `ended`: what is only known to have ended, beyond what is seen: of another
// block, whose arrival has the scope of a block. Memory that it has read may be written; what it
// has written may not be seen.
struct history {
  clock seen, fenced, ended;

  void join(const history& other) {
    seen.join(other.seen);
    fenced.join(other.fenced);
    ended.join(other.ended);
  }
  void join_ended(const history& other) {
    ended.join(other.seen);
    ended.join(other.ended);
  }
  // Whether all that has happened in `other` is known here to have happened.
  bool includes(const history& other) const {
    clock all = seen;
    all.join(ended);
    return all.includes(other.seen) && all.includes(other.ended);
  }
};

// The sum of what some threads know that release to the same place, such as a barrier.
class gathering {
 public:
  // What the thread `actor` knows, its own times being `now` and `fenced_now`.
  void add(const history& known, int actor, uint32_t now, uint32_t fenced_now);
  void raise(int actor, uint32_t time) { sum_.seen.raise(actor, time); }
  const history& sum() const { return sum_; }

 private:
  history sum_;
  uint64_t last_seen_ = 0, last_fenced_ = 0, last_ended_ = 0;  // contents that were joined last
};

}  // namespace kittens::sim::race
