// Random numbers that are the same with every compiler and C++ library.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

namespace gpt2 {

// SplitMix64 (Steele, Lea, Flood, 2014): a counter, and a mixer of it. So any number of a sequence
// can be had without those before it.
class random_numbers {
 public:
  // From number `first` on; a pair of normal ones counts as two.
  explicit random_numbers(uint64_t seed, uint64_t first = 0) : state_(seed + first * kStep) {}

  uint64_t bits() {
    uint64_t z = state_ += kStep;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  // 0 … count − 1. The remainder's bias is count / 2⁶⁴.
  uint64_t below(uint64_t count) { return bits() % count; }
  // Two of deviation 1, by Box and Muller.
  std::pair<float, float> normal_pair() {
    constexpr double kTau = 6.283185307179586;
    const double radius = std::sqrt(-2 * std::log((double(bits() >> 11) + 1) * 0x1p-53));
    const double angle = kTau * double(bits() >> 11) * 0x1p-53;
    return {static_cast<float>(radius * std::cos(angle)),
            static_cast<float>(radius * std::sin(angle))};
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  uint64_t state_;
};

}  // namespace gpt2
