// The kernel of one token against the definition in double.
#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "harness.h"
#include "hedgehog_attention_step.h"
#include "kittens.cuh"

using kittens::testing::buffer;

namespace {

constexpr int kWindow = 64;
using vector = std::vector<double>;

struct call {
  int batch, heads, keys, values, columns;
  int64_t length;  // tokens before; of the next sequence one more
};

std::vector<float> numbers(size_t n, unsigned seed, float size = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(n);
  for (float& x : values) x = normal(generator);
  return values;
}

struct state {
  std::vector<float> kv, sum, k_cache, v_cache;
};
struct inputs {
  state before;
  std::vector<float> q, k, v, q_map, k_map, alpha, beta;
};

vector features(const call& c, const float* x, const float* map) {
  vector values(2 * c.columns);
  double sums[2] = {};
  for (int j = 0; j < c.columns; ++j) {
    double logit = 0;
    for (int i = 0; i < c.keys; ++i) logit += double(x[i]) * map[i * c.columns + j];
    sums[0] += values[j] = std::exp(logit);
    sums[1] += values[j + c.columns] = std::exp(-logit);
  }
  for (int j = 0; j < 2 * c.columns; ++j) values[j] /= sums[j / c.columns];
  return values;
}

// What a head's state should become, in place, and y.
vector take_step(const call& c, const inputs& in, int b, int h, state& s) {
  const int64_t length = c.length + b;
  const size_t head = size_t(b) * c.heads + h;
  const auto row = [&](int j) { return (size_t(b) * kWindow + j) * c.heads + h; };
  const float* const k_map = &in.k_map[size_t(h) * c.keys * c.columns];
  float* const old_k = &s.k_cache[row(length % kWindow) * c.keys];
  float* const old_v = &s.v_cache[row(length % kWindow) * c.values];
  float* const kv = &s.kv[head * 2 * c.columns * c.values];
  float* const sum = &s.sum[head * 2 * c.columns];
  if (length >= kWindow) {
    const vector entering = features(c, old_k, k_map);
    for (int f = 0; f < 2 * c.columns; ++f) {
      sum[f] += entering[f];
      for (int e = 0; e < c.values; ++e) kv[f * c.values + e] += entering[f] * old_v[e];
    }
  }
  std::copy_n(&in.k[head * c.keys], c.keys, old_k);
  std::copy_n(&in.v[head * c.values], c.values, old_v);

  const float* const q = &in.q[head * c.keys];
  vector scores;
  for (int j = 0; j < std::min<int64_t>(length + 1, kWindow); ++j) {
    double score = 0;
    for (int i = 0; i < c.keys; ++i) score += double(q[i]) * s.k_cache[row(j) * c.keys + i];
    scores.push_back(score / std::sqrt(double(c.keys)));
  }
  const double largest = *std::ranges::max_element(scores);
  const vector of_q = features(c, q, &in.q_map[size_t(h) * c.keys * c.columns]);
  vector over(c.values);
  double under = 0;
  for (int f = 0; f < 2 * c.columns; ++f) {
    under += in.alpha[h] * of_q[f] * sum[f];
    for (int e = 0; e < c.values; ++e) over[e] += in.alpha[h] * of_q[f] * kv[f * c.values + e];
  }
  for (size_t j = 0; j < scores.size(); ++j) {
    const double weight = in.beta[h] * std::exp(scores[j] - largest);
    under += weight;
    for (int e = 0; e < c.values; ++e) over[e] += weight * s.v_cache[row(j) * c.values + e];
  }
  for (double& x : over) x /= under;
  return over;
}

void compare(const buffer<float>& got, const std::vector<float>& want) {
  const auto values = got.get();
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(values[i])) continue;  // a place of no token
    CHECK_CLOSE(values[i], want[i], 2e-5 * (1 + std::abs(want[i])));
  }
}

void check(const call& c) {
  const size_t heads = size_t(c.batch) * c.heads, map = size_t(c.heads) * c.keys * c.columns;
  inputs in{
      .before = {numbers(heads * 2 * c.columns * c.values, 1),
                 std::vector<float>(heads * 2 * c.columns, 0.5f),
                 numbers(heads * kWindow * c.keys, 2), numbers(heads * kWindow * c.values, 3)},
      .q = numbers(heads * c.keys, 4),
      .k = numbers(heads * c.keys, 5),
      .v = numbers(heads * c.values, 6),
      .q_map = numbers(map, 7, 0.3f),
      .k_map = numbers(map, 8, 0.3f)};
  std::vector<int64_t> lengths(c.batch);
  for (int h = 0; h < c.heads; ++h) {
    in.alpha.push_back(2.0f + h);
    in.beta.push_back(0.75f + h);
  }
  for (int b = 0; b < c.batch; ++b) {
    lengths[b] = c.length + b;
    // What is in a place before a token has come may be anything.
    for (size_t row = lengths[b]; row < kWindow; ++row) {
      const size_t at = (b * kWindow + row) * c.heads;
      for (auto [cache, width] :
           {std::pair{&in.before.k_cache, c.keys}, std::pair{&in.before.v_cache, c.values}}) {
        std::fill_n(cache->begin() + at * width, c.heads * width, NAN);
      }
    }
  }
  const buffer<float> kv(in.before.kv), sum(in.before.sum), k_cache(in.before.k_cache),
      v_cache(in.before.v_cache), q(in.q), k(in.k), v(in.v), q_map(in.q_map), k_map(in.k_map),
      alpha(in.alpha), beta(in.beta), y(in.v.size());
  const buffer<int64_t> length(lengths);
  run({.problem = {.batch = c.batch,
                   .heads = c.heads,
                   .head_dim = c.keys,
                   .value_dim = c.values,
                   .features = c.columns,
                   .q_strides = {c.heads * c.keys, c.keys},
                   .k_strides = {c.heads * c.keys, c.keys},
                   .v_strides = {c.heads * c.values, c.values},
                   .type = thunderkittens::dtype::float32},
       .tensors = {.kv_state = kv.data(),
                   .k_state = sum.data(),
                   .k_cache = k_cache.data(),
                   .v_cache = v_cache.data(),
                   .length = length.data(),
                   .q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .q_map = q_map.data(),
                   .k_map = k_map.data(),
                   .alpha = alpha.data(),
                   .beta = beta.data(),
                   .y = y.data()}});
  state after = in.before;
  std::vector<float> outputs;
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      for (const double x : take_step(c, in, b, h, after)) outputs.push_back(float(x));
    }
  }
  // Sums of some hundred products in float32.
  compare(y, outputs);
  compare(kv, after.kv);
  compare(sum, after.sum);
  compare(k_cache, after.k_cache);
  compare(v_cache, after.v_cache);
}

}  // namespace

// Of any sizes.
TEST(as_the_window_fills) {
  check({.batch = 3, .heads = 2, .keys = 39, .values = 71, .columns = 21, .length = 62});
}
TEST(wider_than_threads) {
  check({.batch = 1, .heads = 2, .keys = 200, .values = 256, .columns = 128, .length = 1000});
}
TEST(the_first_token) {
  check({.batch = 1, .heads = 1, .keys = 129, .values = 128, .columns = 64, .length = 0});
}
// Of vectors.
TEST(vectors_as_the_window_fills) {
  check({.batch = 3, .heads = 2, .keys = 40, .values = 24, .columns = 20, .length = 62});
}
TEST(as_many_vectors_as_there_can_be) {
  check({.batch = 1, .heads = 1, .keys = 128, .values = 128, .columns = 64, .length = 1000});
}
TEST(wide_vectors_of_the_first_token) {
  check({.batch = 1, .heads = 2, .keys = 64, .values = 100, .columns = 36, .length = 0});
}
