// Work of the host's that is shared out over its threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace gpt2 {

// Calls work(from, to) on parts of 0 … count, at the same time. It must not throw.
template <class F>
void in_parallel(int64_t count, const F& work) {
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 64);
  const auto part = [&](int64_t number) { return count * number / threads; };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(work, part(i), part(i + 1));
  work(part(0), part(1));
  for (std::thread& other : others) other.join();
}

}  // namespace gpt2
