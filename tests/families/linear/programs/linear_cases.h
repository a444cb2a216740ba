// What linear's kernels are judged by: its definition in double.
#pragma once

#include <kittens.cuh>

#include "linear.h"
#include "problem.h"

namespace linear_cases {

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

struct problem {
  int rows, in_features, out_features, blocks;
  bool gated = false, bias = false, residual = false, normalized = false;

  int weight_rows() const { return gated ? 2 * out_features : out_features; }
};

inline void check_form(const problem& is, bool is_constant) {
  constexpr int kGap = 8;  // elements between the rows of x, and of the weight
  constexpr double kEps = 0.5;
  const int stride = (is.in_features + 7) / 8 * 8 + kGap;  // of 16 bytes
  const auto xs = normal_values<bf16>(is.rows * stride, 1);
  const auto weights = normal_values<bf16>(is.weight_rows() * stride, 2);
  const auto biases = normal_values<bf16>(is.weight_rows(), 3);
  const auto residuals = normal_values<bf16>(is.rows * is.out_features, 4);
  const auto norms = normal_values<bf16>(is.in_features, 5);
  const buffer<bf16> norm(norms);
  const buffer<bf16> x(xs), weight(weights), bias(biases), residual(residuals),
      y(is.rows * is.out_features);
  run({.problem = {.rows = is.rows,
                   .in_features = is.in_features,
                   .out_features = is.out_features,
                   .x_stride = stride,
                   .weight_stride = stride,
                   .gated = is.gated,
                   .normalized = is.normalized,
                   .norm_eps = kEps,
                   .type = dtype::bfloat16,
                   .weight_is_constant = is_constant},
       .tensors = {.x = x.data(),
                   .weight = weight.data(),
                   .bias = is.bias ? bias.data() : nullptr,
                   .residual = is.residual ? residual.data() : nullptr,
                   .norm_weight = is.normalized ? norm.data() : nullptr,
                   .y = y.data()},
       .blocks = is.blocks,
       .generic_blocks = is.blocks});
  auto in = doubles(xs);
  const auto w = doubles(weights), b = doubles(biases), r = doubles(residuals);
  const auto g = doubles(norms);
  for (int m = 0; is.normalized && m < is.rows; ++m) {
    double* const row = in.data() + m * stride;
    double squares = 0;
    for (int k = 0; k < is.in_features; ++k) squares += row[k] * row[k];
    const double root = std::sqrt(squares / is.in_features + kEps);
    for (int k = 0; k < is.in_features; ++k) row[k] *= g[k] / root;
  }
  const auto product = [&](int m, int n) {
    double sum = is.bias ? b[n] : 0;
    for (int k = 0; k < is.in_features; ++k) sum += in[m * stride + k] * w[n * stride + k];
    return sum;
  };
  std::vector<double> want;
  for (int m = 0; m < is.rows; ++m) {
    for (int n = 0; n < is.out_features; ++n) {
      double value = product(m, n);
      if (is.gated) value = value / (1 + std::exp(-value)) * product(m, is.out_features + n);
      if (is.residual) value += r[m * is.out_features + n];
      want.push_back(value);
    }
  }
  // One rounding to bf16; before it, some hundred of float32, of products of at most 20. With a
  // norm one more of each factor, whose errors add up as a random walk does; gated, times as large
  // an up.
  const double walk = is.normalized ? 4 * 0x1p-9 * std::sqrt(2.0 * is.in_features) : 0;
  const double of_norm = is.gated ? walk * std::sqrt(double(is.in_features)) : walk;
  check_all("y", y.get(), want, 0x1.1p-8, (is.gated ? 1e-2 : 1e-3) + of_norm);
}

inline void check(const problem& is) {
  for (const bool is_constant : {false, true}) check_form(is, is_constant);
}

}  // namespace linear_cases
