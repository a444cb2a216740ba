// What has happened to each byte of a block's shared memory: its last write, and the reads since.
//
// Most of it moves in pieces of 16 bytes, so there is one record per 16 bytes, divided into four
// and each of those into bytes where accesses are smaller. (Flanagan and Freund, FastTrack, 2009.)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "sim/race/clock.hpp"

namespace kittens::sim::race {

// When each thread of a cluster has passed a proxy fence, in ascending order. Actors beyond them
// are agents of the asynchronous proxy, which need none.
using fence_times = std::vector<std::vector<uint32_t>>;

// One access: whose, when, and what it is ordered behind.
struct access {
  int actor = 0;
  uint32_t time = 0;
  uint32_t site = 0;
  bool writes = false;
  bool by_proxy = false;   // the asynchronous one, which sees ordinary writes through a fence only
  bool is_atomic = false;  // in no conflict with other atomic ones
  bool leaves_trace = true;
  const history* past = nullptr;
  const fence_times* fences = nullptr;
  // The thread that asks for it, whose own times are newer than in `past`; −1: nobody's are.
  int asker = -1;
  uint32_t asker_time = 0, asker_fenced_time = 0;

  // The time of `other` that this is behind.
  uint32_t seen_of(int other) const { return other == asker ? asker_time : past->seen.at(other); }
  // The time of `other` that has ended before this.
  uint32_t ended_of(int other) const { return std::max(seen_of(other), past->ended.at(other)); }
  bool is_behind(int other, uint32_t when) const { return when <= seen_of(other); }
  bool is_behind_end(int other, uint32_t when) const { return when <= ended_of(other); }
  bool is_fenced_from(int other, uint32_t when) const {
    return when <= (other == asker ? asker_fenced_time : past->fenced.at(other));
  }
  // Whether `other` itself, at `when` or later, has passed a proxy fence that this is behind: what
  // a read of its asks for before the asynchronous proxy overwrites what it reads. Another thread's
  // fence does not do, for it does not wait for the loads that `other` has under way.
  bool is_behind_own_fence(int other, uint32_t when) const;
};

// What was there before an access.
struct deed {
  int actor = 0;
  uint32_t time = 0;
  uint32_t site = 0;
  bool wrote = false;
};

enum class fault {
  no_fence,   // ordered, but no proxy fence between an ordinary access and the asynchronous proxy
  unordered,  // a race
  unwritten,  // a read of what nobody has written
};

class fault_sink {
 public:
  virtual void found(fault f, const access& later, const deed& earlier, int64_t offset) = 0;

 protected:
  ~fault_sink() = default;
};

class shadow {
 public:
  explicit shadow(int64_t bytes) : pieces_((bytes + kPiece - 1) / kPiece) {}

  // Checks the access of [offset, offset + bytes), and notes it.
  void touch(int64_t offset, int64_t bytes, const access& a, fault_sink& sink);

 private:
  static constexpr int kPiece = 16, kParts = 4;
  static constexpr uint16_t kNobody = 0xffff, kMany = 0xfffe;

  struct cell {
    uint32_t write_time = 0, write_site = 0;
    uint32_t read_time = 0, read_site = 0;  // kMany: the number of its readers' set
    uint16_t writer = kNobody, reader = kNobody;
    bool by_proxy = false, is_atomic = false;  // the write
    bool is_divided = false;
    uint32_t parts = 0;  // their number, if it is divided
  };
  struct reader {
    int actor;
    uint32_t time, site;
  };
  using readers = std::vector<reader>;  // by actor

  void touch(cell& c, int size, int from, int count, int64_t offset, const access& a,
             fault_sink& sink);
  void touch_whole(cell& c, int64_t offset, const access& a, fault_sink& sink);
  void check_parts(const cell& c, int size, int64_t offset, const access& a, fault_sink& sink);
  void check_write(const cell& c, int64_t offset, const access& a, fault_sink& sink) const;
  void check_readers(const cell& c, int64_t offset, const access& a, fault_sink& sink) const;
  void note_read(cell& c, const access& a);
  void note_write(cell& c, const access& a);
  void divide(cell& c);
  void unite(cell& c);  // forgets its parts and its readers
  uint32_t new_readers(readers content);

  std::vector<cell> pieces_;
  std::deque<std::array<cell, kParts>> parts_;  // a deque: what is in it never moves
  std::deque<readers> readers_;
  std::vector<uint32_t> free_parts_, free_readers_;
};

}  // namespace kittens::sim::race
