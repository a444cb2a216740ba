// The kernel of docs/classic.md.
#include <kittens/classic.cuh>

#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

TEST(doubles) {
  constexpr int kTiles = 3;
  const auto x = exact_values<bf16>(kTiles * 64 * 64);
  const buffer<bf16> x_buffer(x), y_buffer(x.size());
  launch_doubles(x_buffer.data(), y_buffer.data(), kTiles);
  const std::vector<bf16> y = y_buffer.get();
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK_EQUAL(convert<float>(y[i]), 2.0f * convert<float>(x[i]));
  }
}
