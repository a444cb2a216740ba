// The gradient of the decays against its definition in double.
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
  int batch, length, heads, dots;
  int state = 0;  // numbers of one; 0: there are none
  bool weights = false, int64_seqlens = false;
  std::vector<int> ends = {};  // of sequences packed into the batch
  int spoiled = -1;            // the sequence that holds a NaN in its midst, and in its state
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
  auto initial = random_floats(size_t(sequences) * c.heads * c.state, 4);
  const auto d_initial = random_floats(initial.size(), 5);
  const auto spoil = [&](int token) {
    for (int i = 0; i < c.heads * c.dots; ++i) q[size_t(token) * c.heads * c.dots + i] = kNan;
  };
  if (packed) {
    for (int i = 0; i < c.ends.front(); ++i) spoil(i);
    for (int i = c.ends.back(); i < c.length; ++i) spoil(i);
  }
  if (c.spoiled >= 0) {
    spoil((start_of(c.spoiled) + end_of(c.spoiled)) / 2);
    const size_t of_sequence = size_t(c.heads) * c.state;
    for (size_t i = 0; i < of_sequence; ++i) initial[c.spoiled * of_sequence + i] = kNan;
  }
  const size_t tiles = (c.length + 255) / 256;
  const buffer<float> q_data(q), k_data(k), weight_data(weights), initial_data(initial),
      d_initial_data(d_initial), result(count);
  const buffer<double> tile_sums(c.batch * tiles * c.heads),
      state_sums(size_t(sequences) * c.heads);
  const buffer<int> ends(packed ? c.ends : std::vector<int>{0});
  const buffer<int64_t> wide_ends(std::vector<int64_t>(c.ends.begin(), c.ends.end()));
  const void* const numbers = c.int64_seqlens ? static_cast<const void*>(wide_ends.data())
                                              : static_cast<const void*>(ends.data());
  run({.q_dots = q_data.data(),
       .k_dots = k_data.data(),
       .weights = c.weights ? weight_data.data() : nullptr,
       .weight_strides = {int64_t{c.heads} * c.length, 1, c.length},
       .initial_state = c.state > 0 ? initial_data.data() : nullptr,
       .d_initial_state = c.state > 0 ? d_initial_data.data() : nullptr,
       .d_log_decay = result.data(),
       .tile_sums = tile_sums.data(),
       .state_sums = state_sums.data(),
       .cu_seqlens = packed ? numbers : nullptr,
       .int64_seqlens = c.int64_seqlens,
       .sequences = sequences,
       .batch = c.batch,
       .length = c.length,
       .heads = c.heads,
       .dots = c.dots,
       .state = c.state});
  const auto got = result.get();

  std::vector<bool> seen(tokens);
  for (int s = 0; s < sequences; ++s) {
    for (int h = 0; h < c.heads; ++h) {
      double sum = 0, size = 0, term_size = 0;
      for (int i = 0; i < c.state; ++i) {
        const size_t at = (size_t(s) * c.heads + h) * c.state + i;
        sum += double(initial[at]) * d_initial[at];
        size += std::abs(double(initial[at]) * d_initial[at]);
      }
      for (int token = start_of(s); token < end_of(s); ++token) {
        seen[token] = true;
        const size_t at = size_t(token) * c.heads + h;
        // In float32 a state's terms are added up by 256 threads, a token's are as they are: of
        // these roundings there are at most state / 256 and 4; and one of the result.
        constexpr double kUnit = 0x1p-24;
        const double bound = kUnit * ((c.state / 256 + 1) * size + 4 * term_size + std::abs(sum));
        if (std::isnan(sum)) {
          CHECK(std::isnan(got[at]));
        } else {
          CHECK_CLOSE(got[at], sum, bound);
        }
        double q_dot = 0, k_dot = 0;
        for (int d = 0; d < c.dots; ++d) {
          q_dot += q[at * c.dots + d];
          k_dot += k[at * c.dots + d];
          term_size += std::abs(q[at * c.dots + d]);
        }
        const size_t batch = size_t(token) / c.length;
        const double weight =
            c.weights ? weights[(batch * c.heads + h) * c.length + token % c.length] : 1;
        for (int d = 0; d < c.dots; ++d) term_size += std::abs(weight * k[at * c.dots + d]);
        sum -= q_dot - weight * k_dot;
      }
    }
  }
  for (size_t token = 0; token < tokens; ++token) {
    if (seen[token]) continue;
    for (int h = 0; h < c.heads; ++h) CHECK_EQUAL(got[token * c.heads + h], 0.0f);
  }
}

}  // namespace

TEST(one_tile) { check({.batch = 2, .length = 230, .heads = 3, .dots = 1}); }
TEST(tiles_of_batches) {
  check({.batch = 2, .length = 1030, .heads = 3, .dots = 2, .state = 2500, .weights = true});
}
TEST(more_tiles_than_runs) { check({.batch = 1, .length = 256 * 67 + 9, .heads = 1, .dots = 1}); }
TEST(groups_of_heads) {
  check({.batch = 1, .length = 520, .heads = 19, .dots = 1, .state = 64, .weights = true});
}
TEST(whole_tiles_and_groups) {
  check({.batch = 2, .length = 512, .heads = 8, .dots = 1, .state = 2048, .weights = true});
}
TEST(a_token_more_than_a_tile) {
  check({.batch = 2, .length = 257, .heads = 1, .dots = 1, .state = 2049});
}
TEST(a_token) {
  check({.batch = 1, .length = 1, .heads = 1, .dots = 1, .state = 1, .weights = true});
}
TEST(packed) {
  check({.batch = 1,
         .length = 1400,
         .heads = 9,
         .dots = 1,
         .state = 40,
         .weights = true,
         .ends = {3, 3, 70, 71, 71, 256, 900, 904, 1024, 1290, 1290}});
}
TEST(packed_of_two_dots_and_long_ends) {
  check({.batch = 1,
         .length = 1100,
         .heads = 2,
         .dots = 2,
         .int64_seqlens = true,
         .ends = {0, 512, 513, 1000, 1100}});
}
TEST(packed_in_one_tile) {
  check({.batch = 1, .length = 200, .heads = 2, .dots = 1, .state = 8, .ends = {5, 40, 41, 180}});
}
TEST(not_finite_in_front_of_all_others) {
  check({.batch = 1,
         .length = 1100,
         .heads = 2,
         .dots = 1,
         .state = 8,
         .ends = {0, 300, 301, 620, 1100},
         .spoiled = 0});
}
TEST(not_finite_in_the_middle) {
  check({.batch = 1,
         .length = 1100,
         .heads = 2,
         .dots = 1,
         .state = 8,
         .ends = {0, 300, 301, 870, 875, 1100},
         .spoiled = 2});
}
