#include "sim/ready_queue.hpp"

#include <bit>
#include <limits>

namespace kittens::sim {

void ready_queue::start(int fibers, int warps) {
  ring_.assign(std::bit_ceil(static_cast<unsigned>(fibers)), nullptr);
  first_ = ready_ = 0;
  warps_.assign(warps, {});
  if (policy_ != policy::random) return;
  for (warp& w : warps_) w.priority = random_.below(std::numeric_limits<uint64_t>::max());
}

void ready_queue::push(fiber& f) {
  f.ready = true;
  if (policy_ == policy::random) {
    warp& w = warps_[f.queue_warp];
    w.lanes[w.ready++] = &f;
  } else {
    ring_[(first_ + ready_) & (ring_.size() - 1)] = &f;
  }
  ++ready_;
}

fiber* ready_queue::pop() {
  if (ready_ == 0) return nullptr;
  --ready_;
  fiber* const next = policy_ == policy::random ? pop_preferred() : pop_first();
  next->ready = false;
  return next;
}

fiber* ready_queue::pop_first() { return ring_[first_++ & (ring_.size() - 1)]; }

fiber* ready_queue::pop_preferred() {
  if (random_.below(kPopsPerChange) == 0) {
    warps_[random_.below(warps_.size())].priority =
        random_.below(std::numeric_limits<uint64_t>::max());
  }
  warp* preferred = nullptr;
  for (warp& w : warps_) {
    if (w.ready > 0 && (preferred == nullptr || w.priority > preferred->priority)) preferred = &w;
  }
  fiber*& chosen = preferred->lanes[random_.below(preferred->ready)];
  fiber* const next = chosen;
  chosen = preferred->lanes[--preferred->ready];
  return next;
}

void ready_queue::let_others(const fiber& f) {
  if (policy_ == policy::random) warps_[f.queue_warp].priority = 0;
}

}  // namespace kittens::sim
