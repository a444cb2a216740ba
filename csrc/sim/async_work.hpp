// What the hardware does beside the threads: copies now, later matrix products and bulk copies.
// Work is handed in, and done at once, when someone waits for it, or at any time between.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "sim/options.hpp"
#include "sim/random.hpp"

namespace kittens::sim {

class async_work {
 public:
  using ticket = uint64_t;

  async_work(policy p, random_sequence& random) : policy_(p), random_(random) {}

  // Whether `work` may still be under way after submit: what it writes is then undefined.
  bool is_delayed() const { return policy_ != policy::eager; }
  ticket submit(std::function<void()> work);
  bool is_done(ticket t) const { return !pending_.contains(t); }
  // Does it now, unless it is done.
  void finish(ticket t);
  // Does one piece, if there is one: some piece under policy::random, else the oldest.
  bool do_one();
  // Sometimes does some piece that is not late.
  void maybe_do_one();

 private:
  // Under policy::random, some pieces are late: they are done when nothing else can be. Threads are
  // many, so that what any switch between them may do is soon done: without these, nothing would
  // ever be slower than hundreds of threads.
  static constexpr ticket kLate = ticket{1} << 63;
  bool is_late(ticket t) const { return t >= kLate; }

  void perform(std::function<void()> work);

  const policy policy_;
  random_sequence& random_;
  std::map<ticket, std::function<void()>> pending_;  // by age, the late ones last
  ticket next_ = 1;
  // What is done now. Not on the stack, because a fiber that fails never goes on to destroy it.
  std::function<void()> running_;
};

}  // namespace kittens::sim
