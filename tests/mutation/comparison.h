// How far a result is from the one that is wanted, as a whole.
#pragma once

#include <cmath>

namespace kittens::testing {

// Σ (got − want)² and Σ want², whose root of the ratio is the error.
struct comparison {
  double error = 0, norm = 0;
  void add(double got, double want) {
    error += (got - want) * (got - want);
    norm += want * want;
  }
  double relative() const { return std::sqrt(error / norm); }
};

}  // namespace kittens::testing
