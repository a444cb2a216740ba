// The kernels of the folder rows against float64.
#include <kittens/classic.cuh>

#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

double number(bf16 x) { return convert<float>(x); }

}  // namespace

// The result is rounded to bf16, by at most 2⁻⁸ of it. In float, a row's mean and variance are sums
// of 1024 numbers, 32 in a lane and then over the lanes: 37 additions, each off by at most 2⁻²⁴ of
// the sum of sizes. Of numbers below 2 with a deviation of 1.2 that is below 2⁻¹⁷ of the deviation;
// the deviation itself and the last operations stay below as much again.
TEST(layer_norm) {
  constexpr int kRows = 7;
  const auto x = random_elements<bf16>(kRows * D_MODEL, 1);
  const auto weight = random_elements<bf16>(D_MODEL, 2), bias = random_elements<bf16>(D_MODEL, 3);
  const buffer<bf16> x_buffer(x), weight_buffer(weight), bias_buffer(bias), y_buffer(x.size());
  layer_norm(x_buffer.data(), weight_buffer.data(), bias_buffer.data(), y_buffer.data(), kRows,
             nullptr);
  const std::vector<bf16> y = y_buffer.get();
  for (int row = 0; row < kRows; ++row) {
    double mean = 0.0, variance = 0.0;
    for (int i = 0; i < D_MODEL; ++i) mean += number(x[row * D_MODEL + i]) / D_MODEL;
    for (int i = 0; i < D_MODEL; ++i) {
      variance += std::pow(number(x[row * D_MODEL + i]) - mean, 2) / D_MODEL;
    }
    for (int i = 0; i < D_MODEL; ++i) {
      const double normal = (number(x[row * D_MODEL + i]) - mean) / std::sqrt(variance + 1e-5);
      const double want = normal * number(weight[i]) + number(bias[i]);
      const double scale = (1.0 + std::fabs(normal)) * std::fabs(number(weight[i]));
      CHECK_CLOSE(number(y[row * D_MODEL + i]), want,
                  0x1p-8 * std::fabs(want) + 0x1p-16 * scale + 0x1p-22);
    }
  }
}

// One rounding to bf16; in float three, of parts at most |x1 cos| + |x2 sin| in size.
TEST(rotary) {
  constexpr int kHeads = 2, kLength = 128, kHalf = HEAD_DIM / 2;
  const auto x = random_elements<bf16>(kHeads * kLength * HEAD_DIM, 1);
  std::vector<bf16> cos, sin;
  for (int i = 0; i < kLength * kHalf; ++i) {
    const double angle = i / kHalf * std::pow(10000.0, -double(i % kHalf) / kHalf);
    cos.push_back(convert<bf16>(float(std::cos(angle))));
    sin.push_back(convert<bf16>(float(std::sin(angle))));
  }
  const buffer<bf16> x_buffer(x), cos_buffer(cos), sin_buffer(sin), y_buffer(x.size());
  rotary(x_buffer.data(), cos_buffer.data(), sin_buffer.data(), y_buffer.data(), kHeads, kLength,
         nullptr);
  const std::vector<bf16> y = y_buffer.get();
  for (int row = 0; row < kHeads * kLength; ++row) {
    for (int i = 0; i < HEAD_DIM; ++i) {
      const int first = row * HEAD_DIM, at = row % kLength * kHalf + i % kHalf;
      const double c = number(cos[at]) * number(x[first + i]);
      const double s = number(sin[at]) * number(x[first + (i + kHalf) % HEAD_DIM]);
      const double want = i < kHalf ? c - s : c + s;
      CHECK_CLOSE(number(y[first + i]), want,
                  0x1p-8 * std::fabs(want) + 3 * 0x1p-24 * (std::fabs(c) + std::fabs(s)));
    }
  }
}

// Each of a row's numbers takes part in at most 1024 / 4 / 16 + 16 additions of float.
TEST(row_sums) {
  constexpr int kRows = 48, kColumns = 1024;
  const auto x = random_elements<bf16>(kRows * kColumns, 1);
  const buffer<bf16> x_buffer(x);
  const buffer<float> sums_buffer(kRows);
  row_sums(x_buffer.data(), sums_buffer.data(), kRows, kColumns, nullptr);
  const std::vector<float> sums = sums_buffer.get();
  for (int row = 0; row < kRows; ++row) {
    double want = 0.0, size = 0.0;
    for (int i = 0; i < kColumns; ++i) {
      want += number(x[row * kColumns + i]);
      size += std::fabs(number(x[row * kColumns + i]));
    }
    CHECK_CLOSE(sums[row], want, 32 * 0x1p-24 * size);
  }
}
