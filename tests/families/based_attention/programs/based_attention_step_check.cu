// The kernel of one token against its definition in double.
#include <cmath>
#include <random>
#include <vector>

#include "based_attention_step.h"
#include "harness.h"
#include "kittens.cuh"

using kittens::bf16;
using kittens::testing::buffer;

namespace {

struct call {
  int batch, heads, keys, values;
  bool normalize = true;
  int gap = 0;  // floats between the rows of a state
  double eps = 0;
};

std::vector<float> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values)
    value = kittens::convert<float>(kittens::convert<bf16>(normal(generator)));
  return values;
}
std::vector<bf16> in_bf16(const std::vector<float>& x) {
  std::vector<bf16> values(x.size());
  for (size_t i = 0; i < x.size(); ++i) values[i] = kittens::convert<bf16>(x[i]);
  return values;
}

// φ of one row of x.
std::vector<double> features(const float* x, int width, double scale) {
  std::vector<double> f = {1};
  for (int e = 0; e < width; ++e) f.push_back(std::sqrt(scale) * x[e]);
  for (int e = 0; e < width; ++e) {
    for (int g = e; g < width; ++g) {
      f.push_back(scale * (e == g ? std::sqrt(0.5) : 1) * x[e] * x[g]);
    }
  }
  return f;
}

void check(const call& c) {
  const int heads = c.batch * c.heads;
  const int rows = int(thunderkittens::based_attention_features(c.keys));
  const size_t row = size_t(c.values) + c.gap, state = row * rows;
  const auto q = random_values(size_t(heads) * c.keys, 1), k = random_values(q.size(), 2);
  const auto v = random_values(size_t(heads) * c.values, 3);
  const auto before = random_values(state * heads, 4);
  std::vector<float> sums = random_values(size_t(heads) * rows, 5);
  for (int h = 0; h < heads; ++h) sums[size_t(h) * rows] = 400;  // so that denominators are not 0

  const buffer<bf16> q_data(in_bf16(q)), k_data(in_bf16(k)), v_data(in_bf16(v)), o_data(v.size());
  const buffer<float> state_data(before), sums_data(sums);
  const auto strides = [&](int width) {
    return thunderkittens::based_attention_step_problem::strides{int64_t{c.heads} * width, width,
                                                                 1};
  };
  const double scale = 0.3;
  run({.problem = {.batch = c.batch,
                   .heads = c.heads,
                   .key_width = c.keys,
                   .value_width = c.values,
                   .q_strides = strides(c.keys),
                   .k_strides = strides(c.keys),
                   .v_strides = strides(c.values),
                   .state_stride = int64_t(state) * c.heads,
                   .state_head_stride = int64_t(state),
                   .state_row_stride = int64_t(row),
                   .sums_stride = int64_t{rows} * c.heads,
                   .sums_head_stride = rows,
                   .scale = scale,
                   .eps = c.eps,
                   .normalize = c.normalize,
                   .type = thunderkittens::dtype::bfloat16},
       .tensors = {.q = q_data.data(),
                   .k = k_data.data(),
                   .v = v_data.data(),
                   .o = o_data.data(),
                   .state = state_data.data(),
                   .sums = c.normalize ? sums_data.data() : nullptr}});
  const auto o = o_data.get();
  const auto after = state_data.get(), sums_after = sums_data.get();

  for (int h = 0; h < heads; ++h) {
    const auto of_q = features(&q[size_t(h) * c.keys], c.keys, scale);
    const auto of_k = features(&k[size_t(h) * c.keys], c.keys, scale);
    double weight = c.eps;
    for (int i = 0; i < rows; ++i) {
      const size_t at = size_t(h) * rows + i;
      const double next = sums[at] + (c.normalize ? of_k[i] : 0);
      // Of numbers up to 10 (one of 400), some roundings to float.
      CHECK_CLOSE(sums_after[at], next, i == 0 ? 5e-5 : 1e-5);
      weight += of_q[i] * next;
    }
    if (!c.normalize) weight = 1;
    for (int j = 0; j < c.values; ++j) {
      double want = 0, size = 0;
      for (int i = 0; i < rows; ++i) {
        const size_t at = h * state + i * row + j;
        const double next = before[at] + of_k[i] * v[size_t(h) * c.values + j];
        want += of_q[i] * next;
        size += std::abs(of_q[i] * next);
        CHECK_CLOSE(after[at], next, 2e-5);
      }
      want /= weight;
      const float got = kittens::convert<float>(o[size_t(h) * c.values + j]);
      CHECK_CLOSE(got, want, std::abs(want) / 256 + 1e-5 * size / std::abs(weight));
    }
    for (int i = 0; i < rows; ++i) {  // gaps are as they were
      for (size_t j = c.values; j < row; ++j) {
        CHECK_EQUAL(after[h * state + i * row + j], before[h * state + i * row + j]);
      }
    }
  }
}

}  // namespace

TEST(as_in_the_paper) { check({.batch = 2, .heads = 2, .keys = 16, .values = 64}); }
TEST(values_of_two_parts) { check({.batch = 1, .heads = 3, .keys = 16, .values = 76, .gap = 4}); }
TEST(sums_of_values_alone) {
  check({.batch = 2, .heads = 1, .keys = 8, .values = 24, .normalize = false});
}
TEST(single_floats) { check({.batch = 1, .heads = 2, .keys = 15, .values = 35, .gap = 2}); }
TEST(one_key) { check({.batch = 1, .heads = 1, .keys = 1, .values = 4, .eps = 1000}); }
