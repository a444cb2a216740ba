// The gradient of the decays against its formula in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "harness.h"
#include "kittens.cuh"
#include "linear_attention_decay_gradient.h"

using kittens::testing::buffer;

namespace {

struct call {
  int batch, length, heads, dots, anchor;
  bool initial = false, final = false;  // whether there are states, or their gradients
  bool weights = false, int64_seqlens = false;
  std::vector<int> ends = {};  // of sequences packed into the batch
  int spoiled = -1;            // the sequence that holds a NaN in its midst
};

std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

void check(const call& c) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool packed = !c.ends.empty();
  const int sequences = packed ? int(c.ends.size()) - 1 : c.batch;
  const auto start_of = [&](int s) { return packed ? c.ends[s] : s * c.length; };
  const auto end_of = [&](int s) { return packed ? c.ends[s + 1] : (s + 1) * c.length; };
  const size_t tokens = size_t(c.batch) * c.length, count = tokens * c.heads;
  auto q = random_floats(count * c.dots, 1), k = random_floats(count * c.dots, 2);
  auto weights = random_floats(count, 3);  // [batch, heads, length]
  const int64_t slots =
      thunderkittens::linear_attention_anchor_slots(c.length, sequences, packed, c.anchor);
  const int products_of_one = 4 * c.dots;
  // Of slots that are nobody's, and of first tokens without a state, there is a NaN.
  std::vector<float> products(size_t(slots) * c.heads * products_of_one, kNan);
  const auto first_slot = [&](int s) {
    return packed ? c.ends[s] / c.anchor + 1 + s : s * ((c.length + c.anchor - 1) / c.anchor);
  };
  const auto product_of = [&](int s, int number, int h) {
    return products.begin() + ((first_slot(s) + number) * c.heads + h) * products_of_one;
  };
  std::mt19937 generator(4);
  std::normal_distribution<float> normal(0, 5);
  for (int s = 0; s < sequences; ++s) {
    for (int i = c.initial ? 0 : 1; i * c.anchor < end_of(s) - start_of(s); ++i) {
      for (int h = 0; h < c.heads; ++h) {
        const auto to = product_of(s, i, h);
        for (int j = 0; j < products_of_one; ++j) to[j] = normal(generator);
      }
    }
  }
  const auto spoil = [&](int token) {
    for (int i = 0; i < c.heads * c.dots; ++i) q[size_t(token) * c.heads * c.dots + i] = kNan;
  };
  if (packed) {
    for (int i = 0; i < c.ends.front(); ++i) spoil(i);
    for (int i = c.ends.back(); i < c.length; ++i) spoil(i);
  }
  if (c.spoiled >= 0) spoil((start_of(c.spoiled) + end_of(c.spoiled)) / 2);
  const buffer<float> q_data(q), k_data(k), weight_data(weights), product_data(products),
      result(count);
  const buffer<int> ends(packed ? c.ends : std::vector<int>{0});
  const buffer<int64_t> wide_ends(std::vector<int64_t>(c.ends.begin(), c.ends.end()));
  const void* const numbers = c.int64_seqlens ? static_cast<const void*>(wide_ends.data())
                                              : static_cast<const void*>(ends.data());
  run({.q_dots = q_data.data(),
       .k_dots = k_data.data(),
       .weights = c.weights ? weight_data.data() : nullptr,
       .weight_strides = {int64_t{c.heads} * c.length, 1, c.length},
       .products = product_data.data(),
       .initial_state = c.initial,
       .d_final_state = c.final,
       .d_log_decay = result.data(),
       .cu_seqlens = packed ? numbers : nullptr,
       .int64_seqlens = c.int64_seqlens,
       .sequences = sequences,
       .batch = c.batch,
       .length = c.length,
       .heads = c.heads,
       .dots = c.dots,
       .anchor = c.anchor});
  const auto got = result.get();

  // Of a token and head: what dg loses from it to the next one, and the size of its terms.
  const auto term = [&](size_t token, int h, double& size) {
    const size_t at = token * c.heads + h, batch = token / c.length;
    const double weight =
        c.weights ? weights[(batch * c.heads + h) * c.length + token % c.length] : 1;
    double sum = 0;
    for (int d = 0; d < c.dots; ++d) {
      sum += q[at * c.dots + d] - weight * k[at * c.dots + d];
      size += std::abs(q[at * c.dots + d]) + std::abs(weight * k[at * c.dots + d]);
    }
    return sum;
  };
  std::vector<bool> seen(tokens);
  for (int s = 0; s < sequences; ++s) {
    const int length = end_of(s) - start_of(s);
    for (int a = 0; a < length; a += c.anchor) {
      const int count = std::min(c.anchor, length - a);
      const bool last = a + c.anchor >= length;
      for (int h = 0; h < c.heads; ++h) {
        double size = 0, total = 0, sum = 0;
        const auto at_anchor = [&](int number) {
          double product = 0;
          for (int j = 0; j < products_of_one; ++j) {
            product += product_of(s, number, h)[j];
            size += std::abs(product_of(s, number, h)[j]);
          }
          return product;
        };
        const double here = a > 0 || c.initial ? at_anchor(a / c.anchor) : 0;
        const double next = last ? 0 : at_anchor(a / c.anchor + 1);
        for (int i = 0; i < count; ++i) total += term(start_of(s) + a + i, h, size);
        const double error = last && c.final ? 0 : next - here + total;
        for (int i = 0; i < count; ++i) {
          const size_t token = start_of(s) + a + i;
          seen[token] = true;
          const double want = here - sum + error * i / count;
          // A sum has 8 terms of a run, 2 of a warp's halves and 8 warps, and those of a product;
          // there are two of them, and as many more operations on all as 8.
          constexpr double kUnit = 0x1p-24;
          const float value = got[token * c.heads + h];
          if (std::isnan(want)) {
            CHECK(std::isnan(value));
          } else {
            CHECK_CLOSE(value, want, 2 * 36 * kUnit * size);
          }
          double ignored = 0;
          sum += term(token, h, ignored);
        }
      }
    }
  }
  for (size_t token = 0; token < tokens; ++token) {
    if (seen[token]) continue;
    for (int h = 0; h < c.heads; ++h) CHECK_EQUAL(got[token * c.heads + h], 0.0f);
  }
}

}  // namespace

TEST(one_tile) { check({.batch = 2, .length = 103, .heads = 3, .dots = 1, .anchor = 128}); }
TEST(tiles_of_batches) {
  check({.batch = 2,
         .length = 530,
         .heads = 3,
         .dots = 2,
         .anchor = 128,
         .initial = true,
         .final = true,
         .weights = true});
}
TEST(tiles_of_batches_far_apart) {
  check({.batch = 2,
         .length = 1030,
         .heads = 3,
         .dots = 1,
         .anchor = 256,
         .final = true,
         .weights = true});
}
TEST(groups_of_heads) {
  check({.batch = 1,
         .length = 300,
         .heads = 19,
         .dots = 1,
         .anchor = 128,
         .initial = true,
         .weights = true});
}
TEST(whole_tiles_and_groups) {
  check({.batch = 2, .length = 512, .heads = 8, .dots = 2, .anchor = 256, .weights = true});
}
TEST(a_token_more_than_a_tile) {
  check({.batch = 2, .length = 129, .heads = 1, .dots = 1, .anchor = 128, .initial = true});
}
TEST(a_token) {
  check({.batch = 1,
         .length = 1,
         .heads = 1,
         .dots = 1,
         .anchor = 128,
         .initial = true,
         .weights = true});
}
TEST(packed) {
  check({.batch = 1,
         .length = 1400,
         .heads = 9,
         .dots = 1,
         .anchor = 128,
         .initial = true,
         .weights = true,
         .ends = {3, 3, 70, 71, 71, 256, 900, 904, 1024, 1290, 1290}});
}
TEST(packed_behind_long_gaps) {
  check({.batch = 1,
         .length = 1200,
         .heads = 2,
         .dots = 1,
         .anchor = 128,
         .final = true,
         .ends = {300, 520, 900}});
}
TEST(packed_of_two_dots_and_long_ends) {
  check({.batch = 1,
         .length = 1100,
         .heads = 2,
         .dots = 2,
         .anchor = 256,
         .int64_seqlens = true,
         .ends = {0, 512, 513, 1000, 1100}});
}
TEST(packed_in_one_tile) {
  check({.batch = 1,
         .length = 200,
         .heads = 2,
         .dots = 1,
         .anchor = 256,
         .initial = true,
         .ends = {5, 40, 41, 180}});
}
TEST(not_finite_in_front_of_all_others) {
  check({.batch = 1,
         .length = 1100,
         .heads = 2,
         .dots = 1,
         .anchor = 128,
         .initial = true,
         .ends = {0, 300, 301, 620, 1100},
         .spoiled = 0});
}
TEST(not_finite_in_the_middle) {
  check({.batch = 1,
         .length = 1100,
         .heads = 2,
         .dots = 1,
         .anchor = 256,
         .initial = true,
         .ends = {0, 300, 301, 870, 875, 1100},
         .spoiled = 2});
}
