// The chunkwise kernel against the recurrence in double.
#include <cmath>
#include <random>
#include <vector>

#include "harness.h"
#include "kittens.cuh"
#include "linear_attention.h"

using kittens::bf16;
using kittens::testing::buffer;

namespace {

struct call {
  int batch, length, heads, share, keys, values;  // share: heads that have q and k in common
  bool reverse;
  float decay;            // the least of the logarithms; 0: none
  bool constant = false;  // the same for all tokens
  thunderkittens::linear_attention_division division = {100, 100};
};

std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(n);
  for (bf16& value : values) value = kittens::convert<bf16>(normal(generator));
  return values;
}

double number(const std::vector<bf16>& x, size_t i) { return kittens::convert<float>(x[i]); }

// Σ (got − want)² and Σ want², whose root of the ratio is the error.
struct comparison {
  double error = 0, norm = 0;
  void add(double got, double want) {
    error += (got - want) * (got - want);
    norm += want * want;
  }
  double relative() const { return std::sqrt(error / norm); }
};

void check(const call& c) {
  const int key_heads = c.heads / c.share;
  const size_t tokens = size_t(c.batch) * c.length, state = size_t(c.keys) * c.values;
  const size_t states = size_t(c.batch) * c.heads * state;
  const auto q = random_values(tokens * key_heads * c.keys, 1);
  const auto k = random_values(tokens * key_heads * c.keys, 2);
  const auto v = random_values(tokens * c.heads * c.values, 3);
  std::mt19937 generator(4);
  std::uniform_real_distribution<float> uniform;
  std::vector<float> decay(c.constant ? c.heads : tokens * c.heads), initial(states);
  for (float& x : decay) x = c.decay * uniform(generator);
  std::normal_distribution<float> normal(0, 3);
  for (float& x : initial) x = normal(generator);
  const int chunks = (c.length + 63) / 64;
  const size_t parts = (chunks + c.division.part - 1) / c.division.part;
  const bool cut = chunks > c.division.segment;
  const int consumers = (c.values + 63) / 64;
  const float scale = 0.25f;

  const buffer<bf16> q_data(q), k_data(k), v_data(v), o_data(v.size());
  const buffer<float> decay_data(decay), initial_data(initial), final_data(states);
  const buffer<float> part_states(parts * states), part_decays(parts * c.batch * c.heads);
  const buffer<float> dot_data(tokens * c.heads * consumers);
  const auto strides = [&](int heads, int width) {
    return thunderkittens::linear_attention_strides{int64_t{c.length} * heads * width,
                                                    int64_t{heads} * width, width};
  };
  run({.q = {q_data.data(), strides(key_heads, c.keys), c.share},
       .k = {k_data.data(), strides(key_heads, c.keys), c.share},
       .v = {v_data.data(), strides(c.heads, c.values)},
       .o = o_data.data(),
       .log_decay = c.decay == 0 ? nullptr : decay_data.data(),
       .decay_strides =
           c.constant ? thunderkittens::linear_attention_strides{0, 0, 1} : strides(c.heads, 1),
       .initial = {initial_data.data(), c.values, 1},
       .final = {final_data.data(), 1, c.keys},
       .dotted = {v_data.data(), strides(c.heads, c.values)},
       .dots = dot_data.data(),
       .part_states = {cut ? part_states.data() : nullptr, 1, c.keys},
       .part_decays = cut ? part_decays.data() : nullptr,
       .finds_parts = cut,
       .batch = c.batch,
       .length = c.length,
       .heads = c.heads,
       .keys = c.keys,
       .values = c.values,
       .division = c.division,
       .scale = scale,
       .initial_scale = 2,
       .final_scale = 0.5f,
       .reverse = c.reverse,
       .type = thunderkittens::dtype::bfloat16});
  const auto o = o_data.get();
  const auto final = final_data.get(), dots = dot_data.get();

  comparison outputs, final_states, products;
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      const size_t place = (size_t(b) * c.heads + h) * state;
      std::vector<double> s(initial.begin() + place, initial.begin() + place + state);
      for (double& x : s) x *= 2;
      double before = 1;  // in reverse, the decay of the token that came before
      for (int step = 0; step < c.length; ++step) {
        const size_t token = size_t(b) * c.length + (c.reverse ? c.length - 1 - step : step);
        const size_t key = (token * key_heads + h / c.share) * c.keys;
        const size_t value = (token * c.heads + h) * c.values;
        const double own =
            c.decay == 0 ? 1 : std::exp(decay[c.constant ? size_t(h) : token * c.heads + h]);
        const double factor = c.reverse ? before : own;
        before = own;
        double product = 0, kernel_product = 0;
        for (int j = 0; j < c.values; ++j) {
          double want = 0;
          for (int i = 0; i < c.keys; ++i) {
            double& x = s[size_t(i) * c.values + j];
            x = factor * x + number(k, key + i) * number(v, value + j);
            want += scale * x * number(q, key + i);
          }
          outputs.add(number(o, value + j), want);
          product += want * number(v, value + j);
        }
        for (int i = 0; i < consumers; ++i) {
          kernel_product += dots[(token * c.heads + h) * consumers + i];
        }
        products.add(kernel_product, product);
      }
      for (int i = 0; i < c.keys; ++i) {
        for (int j = 0; j < c.values; ++j) {
          const double want = 0.5 * (c.reverse ? before : 1) * s[size_t(i) * c.values + j];
          final_states.add(final[place + size_t(j) * c.keys + i], want);
        }
      }
    }
  }
  // Weights, decayed values and states are rounded to bf16, 2⁻⁹ of each at most and uniformly, and
  // so is o.
  CHECK_CLOSE(outputs.relative(), 0.0, 0.0035);
  CHECK_CLOSE(products.relative(), 0.0, 0.0035);
  CHECK_CLOSE(final_states.relative(), 0.0, 0.0025);
}

}  // namespace

TEST(heads_of_64) {
  check({.batch = 2,
         .length = 200,
         .heads = 2,
         .share = 2,
         .keys = 64,
         .values = 64,
         .reverse = false,
         .decay = -0.1f});
}
TEST(heads_of_64_in_reverse) {
  check({.batch = 1,
         .length = 200,
         .heads = 2,
         .share = 1,
         .keys = 64,
         .values = 64,
         .reverse = true,
         .decay = -0.1f});
}
TEST(segments) {
  check({.batch = 1,
         .length = 390,
         .heads = 2,
         .share = 1,
         .keys = 40,
         .values = 64,
         .reverse = false,
         .decay = -0.05f,
         .division = {3, 3}});
}
TEST(segments_in_reverse) {
  check({.batch = 2,
         .length = 330,
         .heads = 1,
         .share = 1,
         .keys = 64,
         .values = 24,
         .reverse = true,
         .decay = -0.05f,
         .division = {2, 1}});
}
TEST(heads_of_128) {
  check({.batch = 1,
         .length = 320,
         .heads = 2,
         .share = 1,
         .keys = 128,
         .values = 128,
         .reverse = false,
         .decay = -0.2f,
         .constant = true,
         .division = {2, 1}});
}
TEST(strong_decays) {
  check({.batch = 1,
         .length = 130,
         .heads = 2,
         .share = 2,
         .keys = 80,
         .values = 72,
         .reverse = true,
         .decay = -80.0f});
}
TEST(no_decay_and_short) {
  check({.batch = 2,
         .length = 5,
         .heads = 1,
         .share = 1,
         .keys = 16,
         .values = 80,
         .reverse = false,
         .decay = 0});
}
