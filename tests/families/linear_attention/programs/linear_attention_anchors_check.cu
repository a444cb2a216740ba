// Anchors of the decays' gradient, which a forward launch and one in reverse pass, against the
// products of the two states in double.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "harness.h"
#include "kernels/linear_attention/linear_attention_decay_gradient.h"
#include "kittens.cuh"
#include "linear_attention.h"

using kittens::bf16;
using kittens::testing::buffer;

namespace {

struct call {
  int batch, length, heads, keys, values, anchor;
  bool first = true;  // an anchor at the first token, too
  float decay = -0.1f;
  thunderkittens::linear_attention_division division = {100, 100};
  bool weights = false;
  std::vector<int> ends = {};  // of sequences packed into the batch
};

constexpr float kUntouched = 12345.0f;

std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(n);
  for (bf16& value : values) value = kittens::convert<bf16>(normal(generator));
  return values;
}

std::vector<float> random_floats(size_t n, unsigned seed, float least, float most) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(least, most);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(generator);
  return values;
}

// What both launches are given, and what comes out.
struct passed {
  std::vector<bf16> k[2], v[2];  // forward; in reverse
  std::vector<float> decay, weights, initial[2], products;
};

passed run_both(const call& c) {
  const bool packed = !c.ends.empty();
  const int sequences = packed ? int(c.ends.size()) - 1 : c.batch;
  const size_t tokens = size_t(c.batch) * c.length * c.heads;
  const size_t states = size_t(sequences) * c.heads;
  const int parts = (c.values + 63) / 64, width = parts * 64;  // as the program runs it
  const int64_t slots =
      thunderkittens::linear_attention_anchor_slots(c.length, sequences, packed, c.anchor);
  const size_t chunks = (c.length + 63) / 64,
               cuts = (chunks + c.division.part - 1) / c.division.part;
  const bool cut = int64_t(chunks) > c.division.segment;

  passed r;
  r.decay = random_floats(tokens, 1, c.decay, 0);
  r.weights = random_floats(tokens, 2, 0.1f, 2);
  const buffer<bf16> anchor_states(size_t(slots) * c.heads * width * width);
  const buffer<float> products(std::vector<float>(size_t(slots) * c.heads * parts * 4, kUntouched));
  const buffer<float> decay(r.decay), weights(r.weights), final(states * c.keys * c.values),
      part_states(cuts * states * width * width), part_decays(cuts * states);
  const buffer<int> ends(packed ? c.ends : std::vector<int>{0});
  const auto strides = [&](int width) {
    return thunderkittens::linear_attention_strides{int64_t{c.length} * c.heads * width,
                                                    int64_t{c.heads} * width, width};
  };
  for (const bool reverse : {false, true}) {
    r.k[reverse] = random_values(tokens * c.keys, 3 + reverse);
    r.v[reverse] = random_values(tokens * c.values, 5 + reverse);
    r.initial[reverse] = random_floats(states * c.keys * c.values, 7 + reverse, -5, 5);
    const buffer<bf16> k(r.k[reverse]), v(r.v[reverse]), o(tokens * c.values);
    const buffer<float> initial(r.initial[reverse]);
    run({.q = {k.data(), strides(c.keys)},
         .k = {k.data(), strides(c.keys)},
         .v = {v.data(), strides(c.values)},
         .o = o.data(),
         .log_decay = decay.data(),
         .decay_strides = strides(1),
         .k_weights = c.weights && !reverse ? weights.data() : nullptr,
         .o_weights = c.weights && reverse ? weights.data() : nullptr,
         .weight_strides = strides(1),
         .initial = {initial.data(), c.values, 1},
         .final = {final.data(), c.values, 1},
         .part_states = {cut ? part_states.data() : nullptr, width, 1},
         .part_decays = cut ? part_decays.data() : nullptr,
         .finds_parts = cut,
         .anchor_states = anchor_states.data(),
         .anchor_products = products.data(),
         .anchors_first = c.first,
         .anchor = c.anchor,
         .cu_seqlens = packed ? ends.data() : nullptr,
         .int64_seqlens = false,
         .sequences = packed ? sequences : 0,
         .batch = c.batch,
         .length = c.length,
         .heads = c.heads,
         .keys = c.keys,
         .values = c.values,
         .division = c.division,
         .scale = 1,
         .initial_scale = 1,
         .final_scale = 0.25f,
         .reverse = reverse,
         .type = thunderkittens::dtype::bfloat16});
  }
  r.products = products.get();
  return r;
}

void check(const call& c) {
  const passed r = run_both(c);
  const bool packed = !c.ends.empty();
  const int sequences = packed ? int(c.ends.size()) - 1 : c.batch, parts = (c.values + 63) / 64;
  const size_t state = size_t(c.keys) * c.values;
  double error = 0, norm = 0;
  for (int n = 0; n < sequences; ++n) {
    const size_t start = packed ? c.ends[n] : size_t(n) * c.length;
    const int length = packed ? c.ends[n + 1] - c.ends[n] : c.length;
    const int slot =
        packed ? c.ends[n] / c.anchor + 1 + n : n * ((c.length + c.anchor - 1) / c.anchor);
    for (int h = 0; h < c.heads; ++h) {
      const auto state_of = [&](bool reverse) {
        const auto from = r.initial[reverse].begin() + (size_t(n) * c.heads + h) * state;
        return std::vector<double>(from, from + state);
      };
      const auto add = [&](std::vector<double>& s, size_t place, bool reverse) {
        const double weight = c.weights && !reverse ? r.weights[place] : 1;
        for (int i = 0; i < c.keys; ++i) {
          for (int j = 0; j < c.values; ++j) {
            s[size_t(i) * c.values + j] +=
                weight * double(kittens::convert<float>(r.k[reverse][place * c.keys + i])) *
                kittens::convert<float>(r.v[reverse][place * c.values + j]);
          }
        }
      };
      const auto decay = [&](std::vector<double>& s, size_t place) {
        for (double& x : s) x *= std::exp(double(r.decay[place]));
      };
      std::vector<std::vector<double>> in_front;  // of each anchor
      std::vector<double> s = state_of(false);
      for (int t = 0; t < length; ++t) {
        const size_t place = (start + t) * c.heads + h;
        if (t % c.anchor == 0) in_front.push_back(s);
        decay(s, place);
        add(s, place, false);
      }
      s = state_of(true);
      for (int t = length - 1; t >= 0; --t) {
        const size_t place = (start + t) * c.heads + h;
        add(s, place, true);
        decay(s, place);
        if (t % c.anchor != 0) continue;
        double want = 0, got = 0;
        for (size_t i = 0; i < state; ++i) want += 0.25 * s[i] * in_front[t / c.anchor][i];
        for (int i = 0; i < 4 * parts; ++i) {
          const float part =
              r.products[((size_t(slot) + t / c.anchor) * c.heads + h) * 4 * parts + i];
          if (t == 0 && !c.first) CHECK_EQUAL(part, kUntouched);
          got += part;
        }
        if (t == 0 && !c.first) continue;
        error += (got - want) * (got - want);
        norm += want * want;
      }
    }
  }
  // Decayed values of both are rounded to bf16, and one state: 2⁻⁹ of each at most and uniformly,
  // together off by 2⁻⁹. So are sums of terms of both signs, on average; of so few of them, twice
  // that, and half as much again.
  CHECK_CLOSE(std::sqrt(error / norm), 0.0, 0.006);
}

}  // namespace

TEST(anchors_of_heads) {
  check({.batch = 2, .length = 300, .heads = 3, .keys = 64, .values = 64, .anchor = 128});
}
TEST(anchors_far_apart) {
  check({.batch = 1,
         .length = 540,
         .heads = 2,
         .keys = 64,
         .values = 40,
         .anchor = 256,
         .first = false,
         .decay = -0.02f});
}
TEST(a_whole_number_of_them) {
  check({.batch = 1, .length = 256, .heads = 2, .keys = 24, .values = 64, .anchor = 128});
}
TEST(anchors_of_heads_of_128) {
  check({.batch = 1,
         .length = 400,
         .heads = 2,
         .keys = 128,
         .values = 128,
         .anchor = 128,
         .decay = -0.04f,
         .weights = true});
}
TEST(anchors_of_weights_and_strong_decays) {
  check({.batch = 1,
         .length = 270,
         .heads = 8,
         .keys = 64,
         .values = 64,
         .anchor = 128,
         .decay = -2.0f,
         .weights = true});
}
// Segments begin at anchors, and between them.
TEST(anchors_in_segments) {
  check({.batch = 2,
         .length = 600,
         .heads = 1,
         .keys = 40,
         .values = 80,
         .anchor = 128,
         .decay = -0.05f,
         .division = {3, 1}});
}
TEST(anchors_of_packed_sequences) {
  check({.batch = 1,
         .length = 720,
         .heads = 2,
         .keys = 64,
         .values = 64,
         .anchor = 128,
         .division = {3, 3},
         .ends = {3, 130, 130, 131, 259, 387, 700}});
}
TEST(packed_sequences_without_states) {
  check({.batch = 1,
         .length = 640,
         .heads = 2,
         .keys = 64,
         .values = 128,
         .anchor = 256,
         .first = false,
         .decay = -0.02f,
         .ends = {0, 300, 300, 638}});
}
