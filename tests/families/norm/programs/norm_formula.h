// The norms' formulas in double, over [rows, width] matrices one row after the other.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "harness.h"
#include "kittens/types/dtype.cuh"

namespace kittens::testing {

using numbers = std::vector<double>;

// Element i's number: Philox 4x32, seven rounds, written down once more.
inline uint32_t dropout_number(int64_t i, uint64_t seed) {
  const uint64_t counter = i / 4;
  std::array<uint32_t, 4> c = {uint32_t(counter), uint32_t(counter >> 32), 0, 0};
  std::array<uint32_t, 2> key = {uint32_t(seed), uint32_t(seed >> 32)};
  for (int round = 0; round < 7; ++round) {
    const uint64_t a = c[0] * uint64_t(0xD2511F53), b = c[2] * uint64_t(0xCD9E8D57);
    c = {uint32_t(b >> 32) ^ c[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ key[1],
         uint32_t(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c[i % 4];
}

// The p by which element i is just kept.
inline double just_keeps(int64_t i, uint64_t seed) {
  return dropout_number(i, seed) / 4294967296.0;
}

// What dropout multiplies elements by.
inline numbers dropout_factors(int64_t count, uint64_t seed, double p) {
  numbers factor;
  const uint32_t below = static_cast<uint32_t>(std::llround(p * 4294967296.0));
  for (int64_t i = 0; i < count; ++i) {
    factor.push_back(dropout_number(i, seed) >= below ? 1 / (1 - p) : 0);
  }
  return factor;
}

struct norm_outputs {
  numbers y, mean, rstd;
};

// Without a mean (`centred` false) it is zero.
inline norm_outputs normalize(const numbers& s, int64_t width, bool centred, double eps,
                              const numbers& weight, const numbers& bias) {
  norm_outputs want;
  for (size_t first = 0; first < s.size(); first += width) {
    const double* row = &s[first];
    double mean = 0, variance = 0;
    for (int64_t c = 0; centred && c < width; ++c) mean += row[c];
    mean /= static_cast<double>(width);  // exact for equal values
    for (int64_t c = 0; c < width; ++c) variance += (row[c] - mean) * (row[c] - mean) / width;
    // Subnormal numbers are zero to the root, but no positive eps may make it infinite.
    const double smallest = eps > 0 ? double{std::numeric_limits<float>::min()} : 0;
    const double rstd = 1 / std::sqrt(std::max(variance + eps, smallest));
    for (int64_t c = 0; c < width; ++c) {
      want.y.push_back((row[c] - mean) * rstd * weight[c] + bias[c]);
    }
    want.mean.push_back(mean);
    want.rstd.push_back(rstd);
  }
  return want;
}

struct norm_gradients {
  numbers ds, dweight, dbias;
};

inline norm_gradients differentiate(const numbers& dy, const numbers& s, int64_t width,
                                    bool centred, const norm_outputs& of, const numbers& weight) {
  norm_gradients want;
  want.dweight.resize(width), want.dbias.resize(width);
  const double n = static_cast<double>(width);
  for (size_t r = 0; r < of.rstd.size(); ++r) {
    const double *row = &s[r * width], *d = &dy[r * width], rstd = of.rstd[r];
    double mean_g = 0, mean_gs = 0;
    const auto normal = [&](int64_t c) { return (row[c] - of.mean[r]) * rstd; };
    for (int64_t c = 0; c < width; ++c) {
      if (centred) mean_g += d[c] * weight[c] / n;
      mean_gs += d[c] * weight[c] * normal(c) / n;
      want.dweight[c] += d[c] * normal(c);
      want.dbias[c] += d[c];
    }
    for (int64_t c = 0; c < width; ++c) {
      want.ds.push_back(rstd * (d[c] * weight[c] - mean_g - normal(c) * mean_gs));
    }
  }
  return want;
}

// Whether y is what rounding `normal` before the product with the weight gives, too: for nearly all
// elements, since a last bit of the reciprocal root may tip the rounding of some.
template <class T>
void check_rounded_twice(const std::vector<T>& y, const numbers& normal, const numbers& weight) {
  size_t equal = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const float rounded =
        kittens::convert<float>(kittens::convert<T>(static_cast<float>(normal[i])));
    const float product = rounded * static_cast<float>(weight[i % weight.size()]);
    equal += kittens::convert<float>(y[i]) == kittens::convert<float>(kittens::convert<T>(product));
  }
  if (equal * 100 < y.size() * 99) fail("y", static_cast<int>(equal), "are rounded twice");
}

// The [rows, width] elements of a matrix whose rows lie `stride` apart.
inline numbers packed(const numbers& values, int64_t rows, int64_t width, int64_t stride) {
  numbers found;
  for (int64_t r = 0; r < rows; ++r) {
    found.insert(found.end(), &values[r * stride], &values[r * stride] + width);
  }
  return found;
}

}  // namespace kittens::testing
