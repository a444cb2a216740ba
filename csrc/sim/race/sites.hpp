// The places in a program from where shared memory is touched, by number.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/api.hpp"

namespace kittens::sim::race {

struct site {
  const void* pc = nullptr;  // what the call returns to
  const char* name = "";     // of the arch function; empty: an ordinary access
  call_site line;            // that called it; empty for an ordinary access
};

class sites {
 public:
  uint32_t number(const site& s) {
    const auto [found, is_new] =
        numbers_.try_emplace({s.pc, s.name}, static_cast<uint32_t>(all_.size()));
    if (is_new) all_.push_back(s);
    return found->second;
  }
  // The same for an ordinary access, of which there are many from few places.
  uint32_t number(const void* pc) {
    recent& r = recent_[reinterpret_cast<uintptr_t>(pc) % recent_.size()];
    if (r.pc != pc) r = {pc, number(site{pc})};
    return r.number;
  }
  const site& operator[](uint32_t number) const { return all_[number]; }

 private:
  struct recent {
    const void* pc = nullptr;
    uint32_t number = 0;
  };

  std::vector<site> all_;
  std::map<std::pair<const void*, const char*>, uint32_t> numbers_;
  std::array<recent, 509> recent_{};  // a prime: addresses are spread over all of it
};

}  // namespace kittens::sim::race
