#include "sim/async_work.hpp"

#include <iterator>
#include <utility>

namespace kittens::sim {

async_work::ticket async_work::submit(std::function<void()> work) {
  constexpr uint64_t kOneLateIn = 4;
  const bool late = policy_ == policy::random && random_.below(kOneLateIn) == 0;
  const ticket t = next_++ | (late ? kLate : 0);
  if (policy_ == policy::eager) {
    perform(std::move(work));
  } else {
    pending_.emplace(t, std::move(work));
  }
  return t;
}

void async_work::finish(ticket t) {
  const auto found = pending_.find(t);
  if (found == pending_.end()) return;
  std::function<void()> work = std::move(found->second);
  pending_.erase(found);
  perform(std::move(work));
}

void async_work::perform(std::function<void()> work) {
  running_ = std::move(work);
  running_();
  running_ = nullptr;
}

bool async_work::do_one() {
  if (pending_.empty()) return false;
  auto chosen = pending_.begin();
  if (policy_ == policy::random) {
    const auto end = is_late(chosen->first) ? pending_.end() : pending_.lower_bound(kLate);
    const ticket oldest = chosen->first, newest = std::prev(end)->first;
    chosen = pending_.lower_bound(oldest + random_.below(newest - oldest + 1));
  }
  finish(chosen->first);
  return true;
}

void async_work::maybe_do_one() {
  constexpr uint64_t kSwitchesPerPiece = 4;
  if (!pending_.empty() && !is_late(pending_.begin()->first) &&
      random_.below(kSwitchesPerPiece) == 0) {
    do_one();
  }
}

}  // namespace kittens::sim
