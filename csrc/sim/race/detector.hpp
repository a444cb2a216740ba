// Finds accesses to a cluster's shared memory that nothing orders, from what happened before what.
//
// Each thread knows a history; what orders threads passes it on. Copies and products are done by
// agents, actors of their own: what an agent does is ordered behind the thread that asked for it,
// and before who waited for it. An access is checked when it is asked for, not when it is done, so
// the policy of asynchronous work changes no finding.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/api.hpp"
#include "sim/race/clock.hpp"
#include "sim/race/global.hpp"
#include "sim/race/shadow.hpp"
#include "sim/race/sites.hpp"

namespace kittens::sim {
class cluster;
}

namespace kittens::sim::race {

class detector;

enum class actor_kind { thread, load, store, copy, product };

struct actor {
  actor_kind kind = actor_kind::thread;
  int rank = 0;
  int first = 0, count = 1;  // the threads that ask it, of `asker_rank`
  int asker_rank = 0;
  int64_t barrier = 0;  // load: the offset of the mbarrier where it completes
};

// Does one kind of asynchronous work, in order.
struct agent {
  int actor = -1;  // none yet
  uint32_t issued = 0;
  std::vector<uint32_t> groups;  // what was issued before the end of each, oldest first

  // The end of a group.
  void close();
  // How much is over when at most `groups_under_way` are.
  uint32_t over(int groups_under_way) const;
};

// Registers that a product under way has.
struct loan {
  const uint8_t* from = nullptr;
  int64_t bytes = 0;
  uint32_t site = 0;  // of the product
};

// What is known of a simulated thread.
class thread {
 public:
  thread(detector& in, int actor, int rank, int number)
      : in(in), actor(actor), rank(rank), number(number) {}

  void release(gathering& to);
  void acquire(const history& from) { past.join(from); }
  void fence_proxy();
  history now() const;  // all that it knows, its own times included

  void atomic(const void* p, int bytes, int order, bool reads, bool writes, const void* pc);
  void fence();

  detector& in;
  const int actor, rank, number;
  uint32_t time = 1;         // of what it does now: more after each release
  uint32_t fenced_time = 0;  // up to where its own accesses are behind a proxy fence
  history past;
  site called;                      // the arch function that it is in
  const void* stack_end = nullptr;  // its own variables lie below
  agent copies, stores;
  std::vector<loan> loans;
  const uint8_t *loans_from = nullptr, *loans_to = nullptr;  // all of them lie between

 private:
  history fenced_, unfenced_;  // of its last fence; of what its relaxed atomics have read
};

// What an agent does at one time.
struct agent_access {
  int actor = 0;
  uint32_t time = 0;
  bool writes = false;
  bool by_proxy = true;
};

enum class finding_kind {
  no_fence,
  unordered,
  accumulator,  // touched while a product has it
  exit,         // a block may end before the others' accesses to its memory
  unwritten,
};

struct finding {
  finding_kind kind = finding_kind::unordered;
  deed earlier, later;  // earlier: of actor −1 where there is none
  int rank = 0;         // whose memory
  int64_t offset = 0;   // the lowest; accumulator: the number of a register
  std::set<int> earlier_actors, later_actors;
};

class detector final : public fault_sink {
 public:
  explicit detector(cluster& in);
  ~detector();

  thread& thread_at(int index) { return threads_[index]; }
  int new_actor(const actor& a);
  sites& places() { return places_; }
  // In the shared memory of the thread's block.
  int64_t offset_of(const thread& t, const void* p) const;
  // The thread has passed a proxy fence, at its time `when`.
  void note_fence(const thread& t, uint32_t when) { fences_[t.actor].push_back(when); }
  // What was released at each word that atomic operations use.
  std::map<const void*, history>& atomics() { return atomics_; }

  // What the thread itself does: an ordinary access, from `pc`; in the arch function that it has
  // called; of an mbarrier; atomically.
  void access_plain(thread& t, const uint8_t* p, int64_t bytes, bool writes, const void* pc);
  void access_call(thread& t, const void* p, int64_t bytes, bool writes);
  void access_barrier(thread& t, int rank, int64_t offset, bool writes);
  void access_atomic(thread& t, const void* p, int64_t bytes, bool writes, const void* pc);
  // What an agent does for it; what the tensor core does for a warpgroup with that past.
  void access_agent(thread& t, const agent_access& by, int rank, int64_t offset, int64_t bytes);
  void access_product(const agent_access& by, const history& past, uint32_t site, int rank,
                      int64_t offset, int64_t bytes);
  void leave(thread& t);  // it ends
  // For launches to come: a write of global memory; the next grid is let in by who has not waited.
  void write_global(const void* p, int64_t bytes) { written_.add(p, bytes); }
  void note_early_launch() { lets_in_early_ = true; }
  void leave_trace(launch_trace& of) const { of.add(written_, lets_in_early_); }

  // What was found, as text; empty when nothing was. At the end of the cluster.
  std::string report();

  void found(fault f, const access& later, const deed& earlier, int64_t offset) override;

 private:
  using key = std::tuple<finding_kind, uint32_t, uint32_t, bool>;

  access of(const thread& t, uint32_t site, bool writes) const;
  void touch(const access& a, int rank, int64_t offset, int64_t bytes);
  void access_loan(thread& t, const uint8_t* p, int64_t bytes, bool writes, const void* pc);
  void remote_access(int actor, uint32_t time, uint32_t site, int rank);
  void note(const finding& f);
  void check_exits();

  cluster& cluster_;
  const int block_threads_;
  const int64_t shared_bytes_;
  std::vector<thread> threads_;
  std::vector<actor> actors_;
  std::vector<shadow> shadows_;  // by rank
  fence_times fences_;
  int touched_rank_ = 0;  // of the access that is being checked
  sites places_;
  std::map<key, finding> findings_;
  std::map<const void*, history> atomics_;
  byte_set written_;  // of global memory
  bool lets_in_early_ = false;
  std::vector<gathering> exits_;                                // by rank
  std::map<std::tuple<int, int, uint32_t>, uint32_t> remotes_;  // rank, actor, site: last time
};

}  // namespace kittens::sim::race
