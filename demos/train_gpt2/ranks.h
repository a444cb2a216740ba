// The processes of a run, one a GPU. A first process starts them, and ends all where one fails.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpt2 {

class ranks {
 public:
  // Starts so many processes, and returns in each of them, before anything of the device is
  // touched. In the process that starts them it does not return: it waits for them and exits, with
  // 0 if all of them have. Of one rank there is nothing to start.
  explicit ranks(int count);
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;

  int count() const { return count_; }
  int rank() const { return rank_; }
  bool is_first() const { return rank_ == 0; }

  // Once a run: what rank 0 has in `data` comes to all others, which wait for it.
  void hand_out(void* data, size_t bytes);
  // Whether a run that has done so many steps ends there, since rank 0 was interrupted. A rank is
  // at most one step ahead of rank 0, for steps need all of them: so the end is two steps on.
  bool ends_at(int64_t steps, bool interrupted);
  // Whether this process is to say what is wrong: the first in which something is.
  bool may_speak();

 private:
  struct blackboard {
    static constexpr size_t kMost = 128;
    std::atomic<bool> is_written = false, is_spoken = false;
    std::atomic<int64_t> last_step = INT64_MAX;
    std::byte data[kMost];
  };
  [[noreturn]] static void watch(const std::vector<int>& processes);

  int count_, rank_ = 0;
  blackboard* shared_ = nullptr;
};

}  // namespace gpt2
