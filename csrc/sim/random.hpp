// A short, fast sequence of random numbers, the same everywhere for the same seed.
#pragma once

#include <cstdint>

namespace kittens::sim {

// splitmix64: a good hash of a counter.
constexpr uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class random_sequence {
 public:
  explicit random_sequence(uint64_t seed) : state_(hash(seed)) {}

  // 0 … bound − 1. The bias of the remainder is of no concern here.
  uint64_t below(uint64_t bound) { return hash(state_++) % bound; }

 private:
  uint64_t state_;
};

}  // namespace kittens::sim
