// The chunkwise kernel against the recurrence in double.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "comparison.h"
#include "harness.h"
#include "kittens.cuh"
#include "linear_attention.h"

using kittens::bf16;
using kittens::testing::buffer;
using kittens::testing::comparison;

namespace {

struct call {
  int batch, length, heads, share, keys, values;  // share: heads that have q and k in common
  bool reverse;
  float decay;            // the least of the logarithms; 0: none
  bool constant = false;  // the same for all tokens
  thunderkittens::linear_attention_division division = {100, 100};
  bool k_weights = false, o_weights = false, skips = false;
  std::vector<int> ends = {};  // of sequences packed into the batch, from 0 to its length
};

std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(n);
  for (bf16& value : values) value = kittens::convert<bf16>(normal(generator));
  return values;
}

double number(const std::vector<bf16>& x, size_t i) { return kittens::convert<float>(x[i]); }

void check(const call& c) {
  const int key_heads = c.heads / c.share;
  const size_t tokens = size_t(c.batch) * c.length, state = size_t(c.keys) * c.values;
  const bool packed = !c.ends.empty();
  const int sequences = packed ? int(c.ends.size()) - 1 : c.batch;
  const size_t states = size_t(sequences) * c.heads * state;
  const auto q = random_values(tokens * key_heads * c.keys, 1);
  const auto k = random_values(tokens * key_heads * c.keys, 2);
  const auto v = random_values(tokens * c.heads * c.values, 3);
  std::mt19937 generator(4);
  std::uniform_real_distribution<float> uniform;
  std::vector<float> decay(c.constant ? c.heads : tokens * c.heads), initial(states);
  for (float& x : decay) x = c.decay * uniform(generator);
  std::normal_distribution<float> normal(0, 3);
  for (float& x : initial) x = normal(generator);
  // Some are 0: a token that adds nothing, and a row of zeros.
  std::vector<float> weights(tokens * c.heads), skip(c.heads);
  for (float& x : weights) x = std::max(0.0f, 3.3f * uniform(generator) - 0.3f);
  for (float& x : skip) x = normal(generator);
  const int chunks = (c.length + 63) / 64;
  const size_t parts = (chunks + c.division.part - 1) / c.division.part;
  const bool cut = chunks > c.division.segment;
  const int consumers = (c.values + 63) / 64;
  const int padded_keys = consumers * 64;  // as the program runs it
  const float scale = 0.25f;

  const buffer<bf16> q_data(q), k_data(k), v_data(v), o_data(v.size());
  const buffer<float> decay_data(decay), initial_data(initial), final_data(states);
  const buffer<float> part_states(parts * sequences * c.heads * padded_keys * consumers * 64),
      part_decays(parts * sequences * c.heads);
  const buffer<int> ends(packed ? c.ends : std::vector<int>{0});
  const buffer<float> weight_data(weights), skip_data(skip);
  const buffer<float> dot_data(tokens * c.heads * consumers), own_data(tokens * c.heads);
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
       .k_weights = c.k_weights ? weight_data.data() : nullptr,
       .o_weights = c.o_weights ? weight_data.data() : nullptr,
       .weight_strides = strides(c.heads, 1),
       .skip = c.skips ? skip_data.data() : nullptr,
       .initial = {initial_data.data(), c.values, 1},
       .final = {final_data.data(), 1, c.keys},
       .dotted = {v_data.data(), strides(c.heads, c.values)},
       .dots = dot_data.data(),
       .own_scores = c.skips ? own_data.data() : nullptr,
       .part_states = {cut ? part_states.data() : nullptr, 1, padded_keys},
       .part_decays = cut ? part_decays.data() : nullptr,
       .finds_parts = cut,
       .cu_seqlens = packed ? ends.data() : nullptr,
       .int64_seqlens = false,
       .sequences = packed ? sequences : 0,
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
  const auto final = final_data.get(), dots = dot_data.get(), scores_of_own = own_data.get();

  comparison outputs, final_states, products, own_scores;
  for (int b = 0; b < sequences; ++b) {
    const size_t start = packed ? c.ends[b] : size_t(b) * c.length;
    const int length = packed ? c.ends[b + 1] - c.ends[b] : c.length;
    for (int h = 0; h < c.heads; ++h) {
      const size_t place = (size_t(b) * c.heads + h) * state;
      std::vector<double> s(initial.begin() + place, initial.begin() + place + state);
      for (double& x : s) x *= 2;
      double before = 1;  // in reverse, the decay of the token that came before
      for (int step = 0; step < length; ++step) {
        const size_t token = start + (c.reverse ? length - 1 - step : step);
        const size_t key = (token * key_heads + h / c.share) * c.keys;
        const size_t value = (token * c.heads + h) * c.values;
        const double own =
            c.decay == 0 ? 1 : std::exp(decay[c.constant ? size_t(h) : token * c.heads + h]);
        const double factor = c.reverse ? before : own;
        before = own;
        const double weight = weights[token * c.heads + h];
        const double k_weight = c.k_weights ? weight : 1, o_weight = c.o_weights ? weight : 1;
        double product = 0, kernel_product = 0;
        for (int j = 0; j < c.values; ++j) {
          double want = 0;
          for (int i = 0; i < c.keys; ++i) {
            double& x = s[size_t(i) * c.values + j];
            x = factor * x + k_weight * number(k, key + i) * number(v, value + j);
            want += scale * x * number(q, key + i);
          }
          product += want * number(v, value + j);
          want *= o_weight;
          if (c.skips) want += skip[h] * number(v, value + j);
          outputs.add(number(o, value + j), want);
        }
        double own_score = 0;
        for (int i = 0; i < c.keys; ++i) own_score += number(q, key + i) * number(k, key + i);
        if (c.skips) own_scores.add(scores_of_own[token * c.heads + h], own_score);
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
  if (c.skips) CHECK_CLOSE(own_scores.relative(), 0.0, 1e-5);
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
// Of its chunks, some are computed by factors and others exactly.
TEST(weights_of_keys) {
  check({.batch = 2,
         .length = 200,
         .heads = 2,
         .share = 2,
         .keys = 64,
         .values = 64,
         .reverse = false,
         .decay = -0.7f,
         .k_weights = true,
         .skips = true});
}
TEST(weights_of_keys_and_strong_decays) {
  check({.batch = 1,
         .length = 200,
         .heads = 2,
         .share = 1,
         .keys = 64,
         .values = 64,
         .reverse = false,
         .decay = -2.0f,
         .k_weights = true});
}
TEST(weights_of_keys_in_segments) {
  check({.batch = 1,
         .length = 330,
         .heads = 2,
         .share = 1,
         .keys = 40,
         .values = 64,
         .reverse = false,
         .decay = 0,
         .division = {2, 1},
         .k_weights = true});
}
TEST(weights_of_rows_in_reverse) {
  check({.batch = 2,
         .length = 200,
         .heads = 2,
         .share = 1,
         .keys = 64,
         .values = 24,
         .reverse = true,
         .decay = -0.1f,
         .o_weights = true,
         .skips = true});
}
TEST(all_weights_of_heads_of_128) {
  check({.batch = 1,
         .length = 330,
         .heads = 2,
         .share = 2,
         .keys = 128,
         .values = 128,
         .reverse = false,
         .decay = -0.2f,
         .division = {2, 1},
         .k_weights = true,
         .o_weights = true,
         .skips = true});
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
TEST(packed_sequences) {
  check({.batch = 1,
         .length = 330,
         .heads = 2,
         .share = 2,
         .keys = 64,
         .values = 72,
         .reverse = false,
         .decay = -0.1f,
         .division = {2, 1},
         .ends = {0, 70, 70, 71, 330}});
}
TEST(packed_sequences_in_reverse) {
  check({.batch = 1,
         .length = 330,
         .heads = 1,
         .share = 1,
         .keys = 64,
         .values = 64,
         .reverse = true,
         .decay = -0.1f,
         .division = {2, 1},
         .ends = {0, 200, 203, 330}});
}
// A segment is three parts: of sequences of one chunk, the second segment would take two parts that
// nobody writes.
TEST(packed_sequences_shorter_than_a_segment) {
  check({.batch = 1,
         .length = 270,
         .heads = 1,
         .share = 1,
         .keys = 16,
         .values = 16,
         .reverse = false,
         .decay = -0.1f,
         .division = {3, 1},
         .ends = {0, 5, 269, 270}});
}
TEST(stages_of_parts_are_used_again) {
  check({.batch = 1,
         .length = 700,
         .heads = 1,
         .share = 1,
         .keys = 64,
         .values = 128,
         .reverse = false,
         .decay = -0.05f,
         .division = {10, 5}});
}
