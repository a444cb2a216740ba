// quantized_linear's kernel against its definition in double: weights of all codes.
#include "linear.h"

#include <kittens.cuh>

#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;
using kittens::half;

namespace {

struct problem {
  int rows, in_features, out_features, blocks;
  int group = 0;
  bool gated = false, zeros = false, nans = false;

  int weight_rows() const { return gated ? 2 * out_features : out_features; }
};

#if E4M3
constexpr bool kE4m3 = true;
#else
constexpr bool kE4m3 = false;
#endif

// Sign, 4 bits of exponent whose bias is 7, 3 of mantissa; 127 beside the sign is no number.
double of_e4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 127) == 127) return std::nan("");
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 128 ? -size : size;
}

template <class T>
void check_form(const problem& is, bool is_constant) {
  constexpr int kGap = 16;  // bytes between the rows of the weight, and elements between those of x
  const int rows = is.weight_rows(), stride = is.in_features + kGap;
  const int row_bytes = (kE4m3 ? is.in_features : is.in_features / 2) + kGap;
  const int groups = kE4m3 ? 1 : is.in_features / is.group;
  const auto xs = normal_values<T>(is.rows * stride, 1);
  std::vector<uint8_t> bytes(rows * row_bytes), zeros(rows * groups);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = uint8_t(i * 37 + i / 256 * 11 + i / 7);
    if (kE4m3 && !is.nans && bytes[i] % 128 == 127) bytes[i] = 0;
  }
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = uint8_t(i * 7 % 16);
  std::vector<float> row_scales(rows);
  for (int i = 0; i < rows; ++i) row_scales[i] = float(1 + i % 5) / 1024;
  const auto scales = normal_values<T>(rows * groups, 2);
  const buffer<T> x(xs), scale(scales), y(is.rows * is.out_features);
  const buffer<uint8_t> weight(bytes), zero(zeros);
  const buffer<float> row_scale(row_scales);
  run({.problem = {.rows = is.rows,
                   .in_features = is.in_features,
                   .out_features = is.out_features,
                   .x_stride = stride,
                   .weight_stride = row_bytes,
                   .gated = is.gated,
                   .type = std::same_as<T, half> ? dtype::float16 : dtype::bfloat16,
                   .weight = kE4m3 ? linear_weight::e4m3 : linear_weight::int4,
                   .group = is.group,
                   .weight_is_constant = is_constant},
       .tensors = {.x = x.data(),
                   .weight = weight.data(),
                   .y = y.data(),
                   .weight_scale =
                       kE4m3 ? static_cast<const void*>(row_scale.data()) : scale.data(),
                   .weight_zero = is.zeros ? zero.data() : nullptr},
       .blocks = is.blocks,
       .generic_blocks = is.blocks});
  const auto in = doubles(xs), by = doubles(scales);
  const auto weight_at = [&](int n, int k) {
    if (kE4m3) return of_e4m3(bytes[n * row_bytes + k]) * row_scales[n];
    const int place = k % 8 / 2 + k % 2 * 4;  // of its four bits
    const int q = bytes[n * row_bytes + k / 8 * 4 + place / 2] >> place % 2 * 4 & 15;
    const int at = n * groups + k / is.group;
    return (q - (is.zeros ? zeros[at] : 8)) * by[at];
  };
  const auto product = [&](int m, int n) {
    double sum = 0;
    for (int k = 0; k < is.in_features; ++k) sum += in[m * stride + k] * weight_at(n, k);
    return sum;
  };
  std::vector<double> want;
  for (int m = 0; m < is.rows; ++m) {
    for (int n = 0; n < is.out_features; ++n) {
      const double value = product(m, n);
      const double up = is.gated ? product(m, is.out_features + n) : 1;
      want.push_back(is.gated ? value / (1 + std::exp(-value)) * up : value);
    }
  }
  // One rounding of y, and of int4 one of each weight of up to 15 · 4, which add up as a random
  // walk does; gated, times as large an up.
  const double unit = std::same_as<T, half> ? 0x1p-11 : 0x1p-8;
  const double walk = kE4m3 ? 1e-3 : 15 * unit * std::sqrt(double(is.in_features));
  const double of_gate = is.gated ? 30 * std::sqrt(double(is.in_features)) : 1;
  std::vector<T> got = y.get();
  if (is.nans) {  // that they are where they should be
    for (size_t i = 0; i < want.size(); ++i) {
      CHECK_EQUAL(std::isnan(kittens::convert<float>(got[i])), std::isnan(want[i]));
    }
    return;
  }
  check_all("y", got, want, 1.1 * unit, walk * of_gate);
}

template <class T>
void check(const problem& is) {
  for (const bool is_constant : {false, true}) check_form<T>(is, is_constant);
}

}  // namespace

#if E4M3
TEST(more_steps_than_stages) {
  check<bf16>({.rows = 11, .in_features = 1232, .out_features = 40, .blocks = 1});
  check<half>({.rows = 3, .in_features = 1232, .out_features = 24, .blocks = 2});
}
TEST(passes_of_more_steps_than_stages) {
  check<bf16>({.rows = 3, .in_features = 848, .out_features = 312, .blocks = 1});
}
TEST(gate_and_up) {
  check<bf16>({.rows = 2, .in_features = 80, .out_features = 24, .blocks = 2, .gated = true});
}
TEST(no_numbers) {
  check<bf16>({.rows = 1, .in_features = 16, .out_features = 40, .blocks = 1, .nans = true});
  check<half>({.rows = 1, .in_features = 16, .out_features = 40, .blocks = 1, .nans = true});
}
#else
TEST(more_steps_than_stages) {
  check<bf16>({.rows = 11, .in_features = 1632, .out_features = 40, .blocks = 1, .group = 32});
  check<half>({.rows = 3, .in_features = 1632, .out_features = 24, .blocks = 2, .group = 96});
}
TEST(passes_of_more_steps_than_stages) {
  check<bf16>({.rows = 3, .in_features = 1600, .out_features = 216, .blocks = 1, .group = 64});
}
TEST(groups_of_whole_steps) {
  check<bf16>({.rows = 11, .in_features = 1536, .out_features = 88, .blocks = 1, .group = 128});
  check<bf16>({.rows = 3, .in_features = 1792, .out_features = 40, .blocks = 2, .group = 256});
  check<half>({.rows = 8, .in_features = 1536, .out_features = 24, .blocks = 1, .group = 128});
}
TEST(groups_of_whole_steps_with_zeros) {
  check<bf16>({.rows = 2,
               .in_features = 512,
               .out_features = 72,
               .blocks = 1,
               .group = 128,
               .zeros = true});
  check<bf16>({.rows = 9,
               .in_features = 1024,
               .out_features = 24,
               .blocks = 2,
               .group = 256,
               .gated = true,
               .zeros = true});
  check<half>({.rows = 5,
               .in_features = 512,
               .out_features = 24,
               .blocks = 2,
               .group = 128,
               .zeros = true});
}
TEST(zeros) {
  check<bf16>(
      {.rows = 2, .in_features = 384, .out_features = 40, .blocks = 1, .group = 64, .zeros = true});
}
TEST(gate_and_up) {
  check<bf16>({.rows = 2,
               .in_features = 96,
               .out_features = 24,
               .blocks = 2,
               .group = 32,
               .gated = true,
               .zeros = true});
}
#endif
