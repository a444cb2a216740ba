// Floats to the nearest integers.
#include <cfloat>
#include <limits>

#include "kittens/arch/arch.cuh"
#include "record.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

__global__ void rounds(const float* in, int* out) {
  out[arch::thread_id()] = arch::round_to_int(in[arch::thread_id()]);
}

TEST(rounding) {
  std::vector<float> in = {0.0f,
                           0.25f,
                           0.5f,
                           0x1.000002p-1f,
                           1.5f,
                           2.5f,
                           3.5f,
                           8388607.5f,
                           16777218.0f,
                           0x1.fffffep30f,
                           0x1p31f,
                           0x1p32f,
                           FLT_MAX,
                           FLT_MIN / 2,
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  for (size_t i = 0, count = in.size(); i < count; ++i) in.push_back(-in[i]);
  const buffer<float> from(in);
  const buffer<int> to(in.size());
  run(rounds, {.grid = {1}, .block = {int(in.size())}}, from.data(), to.data());
  record("round_to_int", to.get());
}

}  // namespace
