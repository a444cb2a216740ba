// types/dtype.cuh and types/run.cuh: conversions round to nearest even, alone and in pairs.
#include <cmath>

#include "vectors.h"

using namespace kittens;
using testing::buffer;

namespace {

// Every conversion there is of one float: alone, and as the second of a pair.
template <class T>
__global__ void round_trip(const float* in, float* alone, float* paired) {
  const int i = arch::thread_id();
  alone[i] = convert<float>(convert<T>(in[i]));
  lane_run<T, 2> pair;
  const float values[2] = {0.0f, in[i]};
  pair.set(values);
  float back[2];
  pair.get(back);
  paired[i] = back[0] == 0.0f ? back[1] : -1.0f;
}

template <class T>
void check_rounding(const std::vector<float>& in, const std::vector<float>& want) {
  const int n = static_cast<int>(in.size());
  const buffer<float> from(in), alone(in.size()), paired(in.size());
  testing::run(round_trip<T>, {.grid = {1}, .block = {n}}, from.data(), alone.data(),
               paired.data());
  for (int i = 0; i < n; ++i) {
    CHECK_EQUAL(alone.get()[i], want[i]);
    CHECK_EQUAL(paired.get()[i], want[i]);
  }
}

TEST(bf16_rounds_to_nearest_even) {
  check_rounding<bf16>(
      {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x1p-8f + 0x1p-20f, 1.0f + 3 * 0x1p-8f, -3.0e38f},
      {1.0f, 1.0f, 1.0f + 0x1p-7f, 1.0f + 0x1p-6f, -0x1.c4p127f});
}
TEST(half_rounds_to_nearest_even) {
  check_rounding<half>({1.0f, 1.0f + 0x1p-11f, 1.0f + 0x1p-11f + 0x1p-20f, 65504.0f, 0x1p-24f},
                       {1.0f, 1.0f, 1.0f + 0x1p-10f, 65504.0f, 0x1p-24f});
}
TEST(float_stays) { check_rounding<float>({0.1f, -1e-40f, 3e38f}, {0.1f, -1e-40f, 3e38f}); }

TEST(what_half_cannot_hold_becomes_infinite) {
  const buffer<float> in(std::vector<float>{1e6f, -1e6f}), alone(2), paired(2);
  testing::run(round_trip<half>, {.grid = {1}, .block = {2}}, in.data(), alone.data(),
               paired.data());
  CHECK(std::isinf(alone.get()[0]) && alone.get()[0] > 0);
  CHECK(std::isinf(paired.get()[1]) && paired.get()[1] < 0);
}

}  // namespace
