// The kernel against the definition in double, token by token.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "comparison.h"
#include "harness.h"
#include "hedgehog_attention.h"
#include "kittens.cuh"

using kittens::bf16;
using kittens::testing::buffer;
using kittens::testing::comparison;

namespace {

constexpr int kFeatures = 128, kColumns = 64, kBlock = 64;

struct call {
  int batch, length, heads;
  bool window;           // before the first query
  bool missing = false;  // some of its rows do not exist
  int segment_blocks = 100, part_blocks = 100;
  float map_size = 0.1f;
  bool initial = true;  // there is a state before
  int head_dim = 128, value_dim = 128;
};

std::vector<float> numbers(size_t n, unsigned seed, float size = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(n);
  for (float& x : values) x = normal(generator);
  return values;
}

std::vector<bf16> rounded(const std::vector<float>& x) {
  std::vector<bf16> values(x.size());
  std::ranges::transform(x, values.begin(), [](float v) { return kittens::convert<bf16>(v); });
  return values;
}

double number(const std::vector<bf16>& x, size_t i) { return kittens::convert<float>(x[i]); }

using vector = std::vector<double>;

vector row(const std::vector<bf16>& x, int width, size_t token, int heads, int head) {
  vector values(width);
  for (int i = 0; i < width; ++i) values[i] = number(x, (token * heads + head) * width + i);
  return values;
}

double dot(const vector& a, const vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// φ(x) of a head's map.
vector features(const vector& x, const std::vector<bf16>& map, int head) {
  vector values(2 * kColumns);
  double sums[2] = {};
  for (int j = 0; j < kColumns; ++j) {
    double logit = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      logit += x[i] * number(map, (head * x.size() + i) * kColumns + j);
    }
    sums[0] += values[j] = std::exp(logit);
    sums[1] += values[j + kColumns] = std::exp(-logit);
  }
  for (int j = 0; j < 2 * kColumns; ++j) values[j] /= sums[j / kColumns];
  return values;
}

struct inputs {
  std::vector<bf16> q, k, v, q_map, k_map;
  std::vector<float> alpha, beta, kv, sum;
  std::vector<int> first;
};

struct results {
  std::vector<bf16> y;
  std::vector<float> kv, sum;
};

void compare(const call& c, const inputs& in, const results& got) {
  comparison outputs, states, sums;
  const int keys = c.length + (c.window ? kBlock : 0), values = c.value_dim;
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      const size_t head = size_t(b) * c.heads + h;
      std::vector<vector> k, v, of_k;  // of the rows from the window before the first query on
      const int first = c.window ? in.first[b] : kBlock;
      for (int j = 0; j < c.length + kBlock; ++j) {
        const size_t token = size_t(b) * keys + std::max(0, j - (c.window ? 0 : kBlock));
        k.push_back(row(in.k, c.head_dim, token, c.heads, h));
        v.push_back(row(in.v, values, token, c.heads, h));
        of_k.push_back(features(k[j], in.k_map, h));
      }
      vector state(in.kv.begin() + head * kFeatures * values,
                   in.kv.begin() + (head + 1) * kFeatures * values);
      vector sum(in.sum.begin() + head * kFeatures, in.sum.begin() + (head + 1) * kFeatures);
      const auto enter = [&](int from, int to) {
        for (int j = std::max(first, from); j < to; ++j) {
          for (int f = 0; f < kFeatures; ++f) {
            sum[f] += of_k[j][f];
            for (int e = 0; e < values; ++e) state[f * values + e] += of_k[j][f] * v[j][e];
          }
        }
      };
      int entered = 0;
      for (int i = 0; i < c.length; ++i) {
        const int begin = i / kBlock * kBlock;  // of the window
        enter(entered, begin);
        entered = begin;
        const vector q = row(in.q, c.head_dim, size_t(b) * c.length + i, c.heads, h);
        const vector of_q = features(q, in.q_map, h);
        vector scores;
        for (int j = std::max(first, begin); j <= i + kBlock; ++j) {
          scores.push_back(dot(q, k[j]) / std::sqrt(double(c.head_dim)));
        }
        const double largest = *std::ranges::max_element(scores);
        double under = in.alpha[h] * dot(of_q, sum);
        vector over(values);
        for (int f = 0; f < kFeatures; ++f) {
          for (int e = 0; e < values; ++e) {
            over[e] += in.alpha[h] * of_q[f] * state[f * values + e];
          }
        }
        for (size_t n = 0; n < scores.size(); ++n) {
          const double weight = in.beta[h] * std::exp(scores[n] - largest);
          under += weight;
          for (int e = 0; e < values; ++e) over[e] += weight * v[std::max(first, begin) + n][e];
        }
        for (int e = 0; e < values; ++e) {
          const size_t place = ((size_t(b) * c.length + i) * c.heads + h) * values + e;
          outputs.add(number(got.y, place), over[e] / under);
        }
      }
      enter(entered, c.length);
      for (int f = 0; f < kFeatures; ++f) {
        sums.add(got.sum[head * kFeatures + f], sum[f]);
        for (int e = 0; e < values; ++e) {
          states.add(got.kv[(head * kFeatures + f) * values + e], state[f * values + e]);
        }
      }
    }
  }
  // Features, weights and states are rounded to bf16, 2⁻⁹ of each at most and uniformly, and so is
  // y: four roundings on a path.
  CHECK_CLOSE(outputs.relative(), 0.0, 0.0035);
  CHECK_CLOSE(states.relative(), 0.0, 0.0025);
  CHECK_CLOSE(sums.relative(), 0.0, 0.001);
}

void check(const call& c) {
  const int keys = c.length + (c.window ? kBlock : 0);
  const size_t row = size_t(c.heads) * c.head_dim, values = size_t(c.heads) * c.value_dim,
               streams = size_t(c.batch) * c.heads;
  inputs in{
      .q = rounded(numbers(c.batch * c.length * row, 1)),
      .k = rounded(numbers(c.batch * keys * row, 2)),
      .v = rounded(numbers(c.batch * keys * values, 3)),
      .q_map = rounded(numbers(row * kColumns, 4, c.map_size)),
      .k_map = rounded(numbers(row * kColumns, 5, c.map_size)),
      .alpha = std::vector<float>(c.heads),
      .beta = std::vector<float>(c.heads),
      .kv = numbers(streams * kFeatures * c.value_dim, 6, c.initial ? 1.0f : 0.0f),
      .sum = std::vector<float>(streams * kFeatures, c.initial ? 0.5f : 0.0f),
      .first = std::vector<int>(c.batch),
  };
  // What is linear weighs as much as the window does.
  for (int h = 0; h < c.heads; ++h) {
    in.alpha[h] = 2.0f + h;
    in.beta[h] = 0.75f + h;
  }
  for (int b = 0; b < c.batch; ++b) in.first[b] = c.missing ? 37 + b : 0;
  const int segments = ((c.length + kBlock - 1) / kBlock + c.segment_blocks - 1) / c.segment_blocks;
  const int parts = (segments - 1) * ((c.segment_blocks + c.part_blocks - 1) / c.part_blocks);

  const buffer<bf16> q(in.q), k(in.k), v(in.v), q_map(in.q_map), k_map(in.k_map),
      y(c.batch * c.length * values);
  const buffer<float> alpha(in.alpha), beta(in.beta), kv(in.kv), sum(in.sum),
      final_kv(in.kv.size()), final_sum(in.sum.size()), part_kv(parts * streams * kFeatures * 128),
      part_sum(parts * in.sum.size());
  const buffer<int> first(in.first);
  const auto strides = [&](int64_t rows, int64_t width) {
    const int64_t token = c.heads * width;
    return thunderkittens::hedgehog_attention_strides{rows * token, token, width};
  };
  run({.problem = {.batch = c.batch,
                   .length = c.length,
                   .heads = c.heads,
                   .head_dim = c.head_dim,
                   .value_dim = c.value_dim,
                   .features = kColumns,
                   .has_window = c.window,
                   .q_strides = strides(c.length, c.head_dim),
                   .k_strides = strides(keys, c.head_dim),
                   .v_strides = strides(keys, c.value_dim),
                   .type = thunderkittens::dtype::bfloat16},
       .tensors = {.q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .q_map = q_map.data(),
                   .k_map = k_map.data(),
                   .alpha = alpha.data(),
                   .beta = beta.data(),
                   .y = y.data(),
                   .first = c.missing ? first.data() : nullptr,
                   .initial_kv = c.initial ? kv.data() : nullptr,
                   .initial_sum = c.initial ? sum.data() : nullptr,
                   .final_kv = final_kv.data(),
                   .final_sum = final_sum.data()},
       .part_kv = segments > 1 ? part_kv.data() : nullptr,
       .part_sum = segments > 1 ? part_sum.data() : nullptr,
       .segment_blocks = c.segment_blocks,
       .part_blocks = c.part_blocks});
  compare(c, in, {y.get(), final_kv.get(), final_sum.get()});
}

}  // namespace

TEST(several_steps) { check({.batch = 1, .length = 410, .heads = 2, .window = false}); }
TEST(a_window_before) { check({.batch = 2, .length = 150, .heads = 1, .window = true}); }
TEST(a_window_of_which_some_is_missing) {
  check({.batch = 2, .length = 131, .heads = 2, .window = true, .missing = true});
}
TEST(segments) {
  check({.batch = 2, .length = 500, .heads = 1, .window = true, .segment_blocks = 2});
}
TEST(segments_of_several_steps_without_a_state_before) {
  check({.batch = 1,
         .length = 640,
         .heads = 1,
         .window = false,
         .segment_blocks = 4,
         .initial = false});
}
TEST(segments_of_parts) {
  check({.batch = 1,
         .length = 690,
         .heads = 2,
         .window = false,
         .segment_blocks = 6,
         .part_blocks = 4});
}
TEST(states_that_are_passed_on) {  // of nine segments, in one part each
  check({.batch = 1, .length = 1230, .heads = 1, .window = true, .segment_blocks = 2});
}
TEST(logits_whose_exponentials_overflow) {
  check({.batch = 1, .length = 200, .heads = 1, .window = false, .map_size = 4});
}
TEST(narrow_heads) {
  check({.batch = 1,
         .length = 330,
         .heads = 2,
         .window = true,
         .segment_blocks = 2,
         .head_dim = 56,
         .value_dim = 40});
}
TEST(heads_of_more_than_half_a_tile) {
  check({.batch = 2,
         .length = 200,
         .heads = 2,
         .window = false,
         .segment_blocks = 2,
         .head_dim = 72,
         .value_dim = 88});
}
TEST(a_token) { check({.batch = 1, .length = 1, .heads = 1, .window = true}); }
