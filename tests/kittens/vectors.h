// What the tests of the tile layer's vectors share: element types over which they run, and values.
#pragma once

#include <kittens.cuh>
#include <random>
#include <vector>

#include "harness.h"

namespace kittens::testing {

using host::dim;

// A value that bf16 and half hold exactly, so that a copy can be compared bit for bit.
inline float exact_value(int64_t i) { return static_cast<float>(i % 251) - 125.0f; }

template <class T>
std::vector<T> exact_values(int64_t n) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(convert<T>(exact_value(i)));
  return values;
}

// Values of both signs around 1, none of them zero.
inline std::vector<float> random_values(int n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> magnitude(0.25f, 2.0f);
  std::vector<float> values;
  for (int i = 0; i < n; ++i)
    values.push_back(generator() % 2 ? magnitude(generator) : -magnitude(generator));
  return values;
}

// Half a unit in the last place, relative: what one rounding to T costs.
template <class T>
constexpr double rounding() {
  return std::is_same_v<T, float> ? 0x1p-24 : std::is_same_v<T, half> ? 0x1p-11 : 0x1p-8;
}

// Calls f.operator()<V>() for vectors of `Length` elements T and every layout.
template <class T, int Length, class F>
void for_each_layout(F f) {
  f.template operator()<rv<T, Length, ducks::rv_layout::naive>>();
  f.template operator()<rv<T, Length, ducks::rv_layout::runs<2>>>();
  f.template operator()<rv<T, Length, ducks::rv_layout::runs<4>>>();
  f.template operator()<rv<T, Length, ducks::rv_layout::runs<8>>>();
  f.template operator()<rv<T, Length, ducks::rv_layout::ortho>>();
  f.template operator()<rv<T, Length, ducks::rv_layout::align>>();
}

template <int Length, class F>
void for_each_vector(F f) {
  for_each_layout<float, Length>(f);
  for_each_layout<bf16, Length>(f);
  for_each_layout<half, Length>(f);
}

}  // namespace kittens::testing
