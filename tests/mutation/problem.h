// What the cases share: random inputs, and comparisons in which a NaN is as good as its like alone.
#pragma once

#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include "harness.h"
#include "kittens/types/dtype.cuh"

namespace kittens::testing {

// Normally distributed, rounded to T.
template <class T>
std::vector<T> normal_values(size_t n, unsigned seed, float mean = 0, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<T> values(n);
  for (T& value : values) value = kittens::convert<T>(normal(generator));
  return values;
}

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> numbers;
  for (const T value : values) numbers.push_back(kittens::convert<float>(value));
  return numbers;
}

// Half a unit in the last place of numbers in [1, 2).
template <class T>
constexpr double unit() {
  return std::is_same_v<T, float> ? 0x1p-24 : std::is_same_v<T, half> ? 0x1p-11 : 0x1p-8;
}

// Whether each number is within relative · |want| + absolute of the one that is wanted.
template <class T>
void check_all(const char* what, const std::vector<T>& got, const std::vector<double>& want,
               double relative, double absolute) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double g = kittens::convert<float>(got[i]), w = want[i];
    const bool same = g == w || (std::isnan(g) && std::isnan(w));
    if (same || std::fabs(g - w) <= relative * std::fabs(w) + absolute) continue;
    fail(what, static_cast<int>(i), "is " + to_text(g) + ", not " + to_text(w));
    return;
  }
}

}  // namespace kittens::testing
