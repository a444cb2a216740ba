// The backward's kernels against the derivative of the definition in double, pair by pair of
// tokens.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "comparison.h"
#include "harness.h"
#include "hedgehog_attention_backward.h"
#include "kittens.cuh"

using kittens::bf16;
using kittens::testing::buffer;
using kittens::testing::comparison;

namespace {

constexpr int kWidth = 128, kColumns = 64, kBlock = 64;  // kWidth: of tiles

struct call {
  int batch, length, heads;
  int run_blocks = 100, part_blocks = 100;
  float map_size = 0.1f, q_size = 1, k_size = 1;
  bool repeats = false;  // k(2 j) is k(2 j + 1), and equal scores are the largest
  bool all = true;       // gradients are wanted: else that of q alone
  bool of_keys = true;   // … with that of k
  int head_dim = kWidth, value_dim = kWidth;
};

std::vector<bf16> numbers(size_t n, unsigned seed, float size = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<bf16> values(n);
  for (bf16& x : values) x = kittens::convert<bf16>(normal(generator));
  return values;
}

using vector = std::vector<double>;
using matrix = std::vector<vector>;  // rows

double dot(const vector& a, const vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
void add_scaled(vector& to, double factor, const vector& x) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * x[i];
}

// A head's rows of a tensor, or the rows of its map.
matrix rows_of(const call& c, const std::vector<bf16>& x, int width, int batch, int head) {
  matrix rows(c.length, vector(width));
  for (int t = 0; t < c.length; ++t) {
    const size_t row = (size_t(batch) * c.length + t) * c.heads + head;
    for (int i = 0; i < width; ++i) rows[t][i] = kittens::convert<float>(x[row * width + i]);
  }
  return rows;
}
matrix map_of(const call& c, const std::vector<bf16>& x, int head) {
  matrix map(c.head_dim, vector(kColumns));
  for (int i = 0; i < c.head_dim; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      map[i][j] = kittens::convert<float>(x[(size_t(head) * c.head_dim + i) * kColumns + j]);
    }
  }
  return map;
}

vector features(const vector& x, const matrix& map) {
  vector logits(kColumns), values(2 * kColumns);
  for (size_t i = 0; i < x.size(); ++i) add_scaled(logits, x[i], map[i]);
  const double high = *std::ranges::max_element(logits), low = *std::ranges::min_element(logits);
  double sums[2] = {};
  for (int j = 0; j < kColumns; ++j) {
    sums[0] += values[j] = std::exp(logits[j] - high);
    sums[1] += values[j + kColumns] = std::exp(low - logits[j]);
  }
  for (int j = 0; j < 2 * kColumns; ++j) values[j] /= sums[j / kColumns];
  return values;
}
// Adds to the gradients of x and its map what comes through its features.
void differentiate_features(vector& dx, matrix& d_map, const vector& x, const matrix& map,
                            const vector& f, const vector& df) {
  double inner[2] = {};
  for (int j = 0; j < 2 * kColumns; ++j) inner[j / kColumns] += f[j] * df[j];
  vector d(kColumns);
  for (int j = 0; j < kColumns; ++j) {
    d[j] = f[j] * (df[j] - inner[0]) - f[j + kColumns] * (df[j + kColumns] - inner[1]);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    dx[i] += dot(map[i], d);
    add_scaled(d_map[i], x[i], d);
  }
}

struct head_inputs {
  matrix q, k, v, dy, q_map, k_map;
  double alpha, beta;
};
struct head_gradients {
  matrix dq, dk, dv;
};
struct shared_gradients {  // of all sequences' heads of one number
  matrix q_map, k_map;
  double alpha = 0, beta = 0;
  double square = 0;  // Σ of those of the parts of each row: what errors of the two are relative to
};

head_gradients differentiate(const head_inputs& in, shared_gradients& shared) {
  const int length = int(in.q.size());
  head_gradients d;
  d.dq = d.dk = matrix(length, vector(in.q[0].size()));
  d.dv = matrix(length, vector(in.v[0].size()));
  matrix of_q, of_k, d_of_q(length, vector(2 * kColumns)), d_of_k = d_of_q;
  for (int i = 0; i < length; ++i) {
    of_q.push_back(features(in.q[i], in.q_map));
    of_k.push_back(features(in.k[i], in.k_map));
  }
  const double scale = 1 / std::sqrt(double(in.q[0].size()));
  for (int i = 0; i < length; ++i) {
    const int begin = std::max(0, i / kBlock * kBlock - kBlock);  // of the window
    vector scores, weights(i + 1);
    for (int j = begin; j <= i; ++j) scores.push_back(scale * dot(in.q[i], in.k[j]));
    const double largest = *std::ranges::max_element(scores);
    double under = 0, over = 0;  // over: of y · dy
    for (int j = 0; j <= i; ++j) {
      weights[j] = j < begin ? in.alpha * dot(of_q[i], of_k[j])
                             : in.beta * std::exp(scores[j - begin] - largest);
      under += weights[j];
      over += weights[j] * dot(in.dy[i], in.v[j]);
    }
    double sum = 0;
    for (int j = 0; j <= i; ++j) {
      const double d_weight = (dot(in.dy[i], in.v[j]) - over / under) / under;
      add_scaled(d.dv[j], weights[j] / under, in.dy[i]);
      if (j < begin) {
        add_scaled(d_of_q[i], in.alpha * d_weight, of_k[j]);
        add_scaled(d_of_k[j], in.alpha * d_weight, of_q[i]);
        shared.alpha += d_weight * weights[j] / in.alpha;
        continue;
      }
      sum += weights[j] * d_weight;
      shared.beta += d_weight * weights[j] / in.beta;
      add_scaled(d.dq[i], scale * weights[j] * d_weight, in.k[j]);
      add_scaled(d.dk[j], scale * weights[j] * d_weight, in.q[i]);
    }
    shared.square += sum * sum * (1 / (in.alpha * in.alpha) + 1 / (in.beta * in.beta));
    const auto count = std::ranges::count(scores, largest);
    for (int j = begin; j <= i; ++j) {
      if (scores[j - begin] != largest) continue;
      add_scaled(d.dq[i], -scale * sum / count, in.k[j]);
      add_scaled(d.dk[j], -scale * sum / count, in.q[i]);
    }
  }
  for (int i = 0; i < length; ++i) {
    differentiate_features(d.dq[i], shared.q_map, in.q[i], in.q_map, of_q[i], d_of_q[i]);
    differentiate_features(d.dk[i], shared.k_map, in.k[i], in.k_map, of_k[i], d_of_k[i]);
  }
  return d;
}

void check(const call& c) {
  const size_t row = size_t(c.heads) * c.head_dim, size = c.batch * c.length * row,
               values = size_t(c.batch) * c.length * c.heads * c.value_dim;
  auto k_in = numbers(size, 2, c.k_size);
  if (c.repeats) {
    for (size_t t = 0; t + 1 < size_t(c.batch) * c.length; t += 2) {
      std::copy_n(k_in.begin() + t * row, row, k_in.begin() + (t + 1) * row);
    }
  }
  const auto q_in = numbers(size, 1, c.q_size), v_in = numbers(values, 3),
             dy_in = numbers(values, 4);
  const auto q_map_in = numbers(row * kColumns, 5, c.map_size),
             k_map_in = numbers(row * kColumns, 6, c.map_size);
  // What is linear weighs as much as the window does.
  std::vector<float> alpha_in(c.heads), beta_in(c.heads);
  for (int h = 0; h < c.heads; ++h) {
    alpha_in[h] = 2.0f + h;
    beta_in[h] = 0.75f + h;
  }
  const int blocks = (c.length + kBlock - 1) / kBlock, streams = c.batch * c.heads;
  const int runs = (blocks + c.run_blocks - 1) / c.run_blocks, parts = streams * runs;
  const int states_of =
      std::max(blocks, 2 * (runs - 1) * ((c.run_blocks + c.part_blocks - 1) / c.part_blocks));
  const buffer<bf16> q(q_in), k(k_in), v(v_in), dy(dy_in), q_map(q_map_in), k_map(k_map_in);
  const buffer<float> alpha(alpha_in), beta(beta_in);
  const buffer<bf16> dq(size), dk(size), dv(values), dq_map(row * kColumns), dk_map(row * kColumns);
  const buffer<float> dalpha(c.heads), dbeta(c.heads);
  const buffer<bf16> states(size_t(streams) * states_of * kWidth * kWidth);
  const buffer<float> state_sums(size_t(streams) * states_of * kWidth),
      factors(size_t(streams) * blocks * kBlock * 4), q_map_parts(parts * kWidth * kColumns),
      k_map_parts(parts * kWidth * kColumns), weight_parts(parts);
  const auto strides = [&](int64_t width) {
    const int64_t token = c.heads * width;
    return thunderkittens::hedgehog_attention_strides{c.length * token, token, width};
  };
  const auto wanted = [&](auto* data) { return c.all ? data : nullptr; };
  run({.problem = {.forward = {.batch = c.batch,
                               .length = c.length,
                               .heads = c.heads,
                               .head_dim = c.head_dim,
                               .value_dim = c.value_dim,
                               .features = kColumns,
                               .has_window = false,
                               .q_strides = strides(c.head_dim),
                               .k_strides = strides(c.head_dim),
                               .v_strides = strides(c.value_dim),
                               .type = thunderkittens::dtype::bfloat16},
                   .dy_strides = strides(c.value_dim)},
       .tensors = {.q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .q_map = q_map.data(),
                   .k_map = k_map.data(),
                   .alpha = alpha.data(),
                   .beta = beta.data(),
                   .dy = dy.data(),
                   .dq = dq.data(),
                   .dk = c.of_keys ? wanted(dk.data()) : nullptr,
                   .dv = wanted(dv.data()),
                   .dq_map = wanted(dq_map.data()),
                   .dk_map = wanted(dk_map.data()),
                   .dalpha = wanted(dalpha.data()),
                   .dbeta = wanted(dbeta.data())},
       .states = states.data(),
       .state_sums = state_sums.data(),
       .factors = factors.data(),
       .q_map_parts = q_map_parts.data(),
       .k_map_parts = k_map_parts.data(),
       .weight_parts = weight_parts.data(),
       .run_blocks = c.run_blocks,
       .part_blocks = c.part_blocks});

  comparison of_q, of_k, of_v, of_q_map, of_k_map, of_weights;
  const auto got_q = dq.get();
  const auto compare = [&](comparison& to, const std::vector<bf16>& got, int b, int h,
                           const matrix& want) {
    const matrix rows = rows_of(c, got, int(want[0].size()), b, h);
    for (int t = 0; t < c.length; ++t) {
      for (size_t i = 0; i < want[0].size(); ++i) to.add(rows[t][i], want[t][i]);
    }
  };
  for (int h = 0; h < c.heads; ++h) {
    const matrix no_map(c.head_dim, vector(kColumns));
    shared_gradients shared{no_map, no_map};
    for (int b = 0; b < c.batch; ++b) {
      const auto head = [&](const std::vector<bf16>& x, int width) {
        return rows_of(c, x, width, b, h);
      };
      const head_gradients want =
          differentiate({head(q_in, c.head_dim), head(k_in, c.head_dim), head(v_in, c.value_dim),
                         head(dy_in, c.value_dim), map_of(c, q_map_in, h), map_of(c, k_map_in, h),
                         alpha_in[h], beta_in[h]},
                        shared);
      compare(of_q, got_q, b, h, want.dq);
      if (!c.all) continue;
      if (c.of_keys) compare(of_k, dk.get(), b, h, want.dk);
      compare(of_v, dv.get(), b, h, want.dv);
    }
    if (!c.all) continue;
    const matrix q_maps = map_of(c, dq_map.get(), h), k_maps = map_of(c, dk_map.get(), h);
    for (int i = 0; i < c.head_dim; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        of_q_map.add(q_maps[i][j], shared.q_map[i][j]);
        of_k_map.add(k_maps[i][j], shared.k_map[i][j]);
      }
    }
    of_weights.add(dalpha.get()[h], shared.alpha);
    of_weights.add(dbeta.get()[h], shared.beta);
    of_weights.norm += shared.square - shared.alpha * shared.alpha - shared.beta * shared.beta;
  }
  // Features, weights, scores' gradients and states are rounded to bf16, 2⁻⁹ of each at most and
  // uniformly, and so are the results: about six roundings on a path.
  // Features of tiny keys are equal, so that those of queries have no gradient, but for rounding.
  const bool are_keys_tiny = c.k_size < 1;
  if (!are_keys_tiny) CHECK_CLOSE(of_q.relative(), 0.0, 0.004);
  if (!c.all) return;
  if (c.of_keys) CHECK_CLOSE(of_k.relative(), 0.0, 0.004);
  CHECK_CLOSE(of_v.relative(), 0.0, 0.004);
  if (c.length <= 2 * kBlock) return;  // of which no query has a state
  if (!are_keys_tiny) CHECK_CLOSE(of_q_map.relative(), 0.0, 0.005);
  CHECK_CLOSE(of_k_map.relative(), 0.0, 0.005);
  CHECK_CLOSE(of_weights.relative(), 0.0, 0.003);
}

}  // namespace

TEST(several_blocks) { check({.batch = 1, .length = 330, .heads = 2}); }
#if GENERIC
TEST(more_states_than_loads_under_way) { check({.batch = 1, .length = 650, .heads = 1}); }
#endif
TEST(runs) { check({.batch = 2, .length = 250, .heads = 1, .run_blocks = 2}); }
TEST(long_runs) { check({.batch = 1, .length = 460, .heads = 1, .run_blocks = 6}); }
TEST(runs_of_parts) {
  check({.batch = 1, .length = 650, .heads = 2, .run_blocks = 5, .part_blocks = 2});
}
TEST(states_that_are_passed_on) {  // of ten parts
  check({.batch = 1, .length = 650, .heads = 1, .run_blocks = 2, .part_blocks = 1});
}
TEST(equal_scores) { check({.batch = 1, .length = 200, .heads = 1, .repeats = true}); }
// All weights are 1 in float32, but one score is the largest.
TEST(scores_next_to_each_other) {
  check({.batch = 1, .length = 200, .heads = 1, .q_size = 1e-8f, .all = false});
  check({.batch = 1, .length = 200, .heads = 1, .k_size = 1e-8f});
}
TEST(logits_whose_exponentials_overflow) {
  check({.batch = 1, .length = 200, .heads = 1, .map_size = 4});
}
TEST(narrow_heads) {
  check({.batch = 1, .length = 330, .heads = 2, .run_blocks = 4, .head_dim = 56, .value_dim = 40});
}
TEST(heads_of_more_than_half_a_tile) {
  check({.batch = 2, .length = 200, .heads = 2, .run_blocks = 2, .head_dim = 72, .value_dim = 88});
}
TEST(no_state) { check({.batch = 1, .length = 70, .heads = 1}); }
TEST(values_without_keys) { check({.batch = 1, .length = 140, .heads = 1, .of_keys = false}); }
TEST(queries_alone) { check({.batch = 1, .length = 140, .heads = 1, .all = false}); }
