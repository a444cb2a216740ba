// The gates' gradients against their definition in double.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "harness.h"
#include "kittens.cuh"
#include "mamba2_gate_gradients.h"

using kittens::bf16;
using kittens::testing::buffer;

namespace {

constexpr int kTile = thunderkittens::kMamba2GateTile;

struct call {
  int batch, length, heads, parts;
  bool softplus = false, biased = false;
  float least = 0, most = INFINITY;
  std::vector<int64_t> ends = {};  // of sequences packed into the batch
  bool int64_seqlens = false;
  bool wants_dt = true, wants_a = true, wants_bias = true;
};

std::vector<float> random_floats(size_t n, unsigned seed, float mean = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean);
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

void check(const call& c) {
  constexpr int kGap = 3;  // elements between the tokens of dt, beside its heads
  const size_t tokens = size_t(c.batch) * c.length, count = tokens * c.heads;
  const bool packed = !c.ends.empty();
  const auto there = [&](int64_t token) {
    return !packed || (c.ends.front() <= token && token < c.ends.back());
  };
  const size_t row = c.heads + kGap;
  std::vector<bf16> dt;
  for (const float x : random_floats(tokens * row, 1)) dt.push_back(kittens::convert<bf16>(x));
  auto d_decay = random_floats(count, 2);
  const auto d_weight = random_floats(count * c.parts, 3), a = random_floats(c.heads, 4),
             steps = random_floats(count, 5);  // [batch, heads, length]
  auto bias = random_floats(c.heads, 6);
  bias[0] = 19;                           // where softplus ends
  dt[0] = kittens::convert<bf16>(0.25f);  // limits of a test
  dt[(tokens - 1) * row] = kittens::convert<bf16>(1.0f);
  for (size_t token = 0; token < tokens; ++token) {
    if (there(token)) continue;
    dt[token * row] = kittens::convert<bf16>(std::numeric_limits<float>::quiet_NaN());
    d_decay[token * c.heads] = std::numeric_limits<float>::quiet_NaN();
  }
  const size_t tiles = (c.length + kTile - 1) / kTile, sums = c.batch * tiles * c.heads;
  const std::vector<float> zeros(sums);
  const buffer<bf16> dt_data(dt), result(std::vector<bf16>(count, bf16{}));
  const buffer<float> d_decay_data(d_decay), d_weight_data(d_weight), a_data(a), step_data(steps),
      bias_data(bias), of_a(zeros), of_bias(zeros);
  const buffer<int64_t> ends(packed ? c.ends : std::vector<int64_t>{0});
  const buffer<int32_t> narrow_ends(std::vector<int32_t>(c.ends.begin(), c.ends.end()));
  const void* const numbers = c.int64_seqlens ? static_cast<const void*>(ends.data())
                                              : static_cast<const void*>(narrow_ends.data());
  run({.d_log_decay = d_decay_data.data(),
       .d_weights = d_weight_data.data(),
       .dt = dt_data.data(),
       .dt_strides = {int64_t(c.length * row), int64_t(row), 1},
       .dt_bias = c.biased ? bias_data.data() : nullptr,
       .a = a_data.data(),
       .steps = step_data.data(),
       .d_dt = c.wants_dt ? result.data() : nullptr,
       .d_a = c.wants_a ? of_a.data() : nullptr,
       .d_bias = c.wants_bias ? of_bias.data() : nullptr,
       .batch = c.batch,
       .length = c.length,
       .heads = c.heads,
       .parts = c.parts,
       .dt_min = c.least,
       .dt_max = c.most,
       .softplus = c.softplus,
       .type = thunderkittens::dtype::bfloat16,
       .cu_seqlens = packed ? numbers : nullptr,
       .int64_seqlens = c.int64_seqlens,
       .sequences = int64_t(c.ends.size()) - 1});
  const auto got = result.get();
  const auto got_a = of_a.get(), got_bias = of_bias.get();

  std::vector<double> want_a(sums), want_bias(sums), size_a(sums), size_bias(sums);
  for (size_t token = 0; token < tokens; ++token) {
    for (int h = 0; h < c.heads; ++h) {
      const size_t at = token * c.heads + h, batch = token / c.length, t = token % c.length;
      const size_t sum = (batch * tiles + t / kTile) * c.heads + h;
      double want = 0, size = 0;
      if (there(token)) {
        const float in_float = kittens::convert<float>(dt[token * row + h]) +
                               (c.biased ? bias[h] : 0.0f);  // as a limit sees it
        const double raw = in_float;
        const double before = !c.softplus ? raw : raw > 20 ? raw : std::log1p(std::exp(raw));
        const double slope = c.softplus && raw <= 20 ? 1 / (1 + std::exp(-raw)) : 1;
        const bool passes = before >= c.least && before <= c.most;
        double sum_of_parts = 0;
        for (int part = 0; part < c.parts; ++part) {
          sum_of_parts += d_weight[at * c.parts + part];
          size += std::abs(d_weight[at * c.parts + part]);
        }
        size = (size + std::abs(double(d_decay[at]) * a[h])) * slope;
        want = passes ? (sum_of_parts + double(d_decay[at]) * a[h]) * slope : 0;
        const double product = double(d_decay[at]) * steps[(batch * c.heads + h) * c.length + t];
        want_a[sum] += product;
        size_a[sum] += std::abs(product);
      }
      want_bias[sum] += want;
      size_bias[sum] += size;
      const double number = kittens::convert<float>(got[at]);
      // Of bf16, 2⁻⁸; the rest is float32, with a sigmoid of some ulp.
      if (c.wants_dt) CHECK_CLOSE(number, want, std::abs(want) / 256 + 3e-6 * size);
      if (!c.wants_dt) CHECK_EQUAL(number, 0.0);
    }
  }
  for (size_t i = 0; i < sums; ++i) {
    CHECK_CLOSE(got_a[i], c.wants_a ? want_a[i] : 0, 3e-6 * size_a[i]);
    CHECK_CLOSE(got_bias[i], c.wants_bias ? want_bias[i] : 0, 3e-6 * size_bias[i]);
  }
}

}  // namespace

TEST(softplus_and_bias) {
  check({.batch = 2, .length = 300, .heads = 11, .parts = 1, .softplus = true, .biased = true});
}
TEST(limits) {
  check({.batch = 2, .length = 70, .heads = 2, .parts = 2, .least = 0.25f, .most = 1.0f});
}
TEST(limits_of_softplus) {
  check({.batch = 1,
         .length = 260,
         .heads = 3,
         .parts = 2,
         .softplus = true,
         .least = 0.5f,
         .most = 1.5f});
}
TEST(packed) {
  check({.batch = 1, .length = 600, .heads = 2, .parts = 1, .biased = true, .ends = {3, 9, 590}});
}
TEST(packed_by_long_ends) {
  check({.batch = 1,
         .length = 530,
         .heads = 1,
         .parts = 1,
         .softplus = true,
         .ends = {260, 300, 301, 512},
         .int64_seqlens = true});
}
TEST(whole_tiles_and_groups) {
  check({.batch = 2, .length = 256, .heads = 8, .parts = 1, .softplus = true});
}
TEST(a_token_more_than_a_tile) {
  check({.batch = 1, .length = 257, .heads = 9, .parts = 1, .softplus = true});
}
TEST(a_token) { check({.batch = 1, .length = 1, .heads = 1, .parts = 1}); }
TEST(dt_alone) {
  check({.batch = 1,
         .length = 20,
         .heads = 2,
         .parts = 1,
         .softplus = true,
         .wants_a = false,
         .wants_bias = false});
}
TEST(sums_alone) {
  check({.batch = 1, .length = 20, .heads = 2, .parts = 1, .softplus = true, .wants_dt = false});
}
