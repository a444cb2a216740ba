// Learning rates over a run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace gpt2 {

struct schedule {
  std::string shape = "cosine";  // or linear, constant, wsd
  double highest = 6e-4;
  double last = 0.1;         // the last rate, by the highest
  int64_t warmup = 0;        // steps, in which it rises linearly
  double decay_share = 0.2;  // of wsd (warm-up, stable, decay): the share of the steps that decays

  // Of the update number `step`, from 0, of `steps`.
  double at(int64_t step, int64_t steps) const {
    if (step < warmup) return highest * double(step + 1) / double(warmup);
    constexpr double kPi = 3.14159265358979323846;
    const auto progress = [&](double first) {
      return std::clamp((double(step) - first) / std::max(1.0, double(steps) - first), 0.0, 1.0);
    };
    const double done = progress(double(warmup));
    double left = 1;  // of the way from the last rate to the highest
    if (shape == "cosine") left = 0.5 * (1 + std::cos(kPi * done));
    if (shape == "linear") left = 1 - done;
    if (shape == "wsd") left = 1 - std::sqrt(progress(double(steps) * (1 - decay_share)));
    return highest * (last + (1 - last) * left);
  }
};

}  // namespace gpt2
