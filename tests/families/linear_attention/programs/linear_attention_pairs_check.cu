// The kernels of two heads side by side, whose gates are made of dt, against the recurrence in
// double: of one warpgroup a head, and warp-specialized.
#include <algorithm>
#include <cmath>
#include <vector>

#include "comparison.h"
#include "harness.h"
#include "kittens.cuh"
#include "linear_attention.h"
#include "problem.h"

using kittens::bf16;
using kittens::testing::buffer;
using kittens::testing::comparison;
using kittens::testing::normal_values;

namespace {

struct call {
  int batch, length, heads, share, keys, values;  // share: heads that have q and k in common
  float steps = -2;                               // added to dt, which is normally distributed
  float a = -1;                                   // of the first head; the others' are a bit less
  thunderkittens::linear_attention_division division = {100, 100};
  thunderkittens::dtype type = thunderkittens::dtype::bfloat16;
  int gap = 0;          // between the heads of one token and those of the next, in elements of dt
  bool options = true;  // bias, softplus, bounds and what skips
  bool warp_specialized = false;
};

template <class T>
double number(const std::vector<T>& x, size_t i) {
  return kittens::convert<float>(x[i]);
}

template <class Dt>
void check_of(const call& c) {
  const int key_heads = c.heads / c.share, row = c.heads + c.gap;
  const size_t tokens = size_t(c.batch) * c.length, state = size_t(c.keys) * c.values;
  const size_t states = size_t(c.batch) * c.heads * state;
  const auto q = normal_values<bf16>(tokens * key_heads * c.keys, 1);
  const auto k = normal_values<bf16>(tokens * key_heads * c.keys, 2);
  const auto v = normal_values<bf16>(tokens * c.heads * c.values, 3);
  std::vector<Dt> dt;
  for (const float x : normal_values<float>(tokens * row, 4)) {
    dt.push_back(kittens::convert<Dt>((c.options ? x : std::abs(x)) + c.steps));
  }
  const auto initial = normal_values<float>(states, 5), bias = normal_values<float>(c.heads, 6),
             skip = normal_values<float>(c.heads, 7);
  std::vector<float> a(c.heads);
  for (int h = 0; h < c.heads; ++h) a[h] = c.a * (1 + 0.25f * h);
  const float least = c.options ? 0.02f : 0, most = c.options ? 1.5f : INFINITY;
  const int chunks = (c.length + 63) / 64;
  const size_t parts = (chunks + c.division.part - 1) / c.division.part;
  const bool cut = chunks > c.division.segment;

  const buffer<bf16> q_data(q), k_data(k), v_data(v), o_data(v.size());
  const buffer<Dt> dt_data(dt);
  const buffer<float> a_data(a), bias_data(bias), skip_data(skip), initial_data(initial),
      final_data(states), part_states(parts * c.batch * c.heads * 64 * 64),
      part_decays(parts * c.batch * c.heads);
  const auto strides = [&](int heads, int width) {
    return thunderkittens::linear_attention_strides{int64_t{c.length} * heads * width,
                                                    int64_t{heads} * width, width};
  };
  run({.q = {q_data.data(), strides(key_heads, c.keys), c.share},
       .k = {k_data.data(), strides(key_heads, c.keys), c.share},
       .v = {v_data.data(), strides(c.heads, c.values)},
       .o = o_data.data(),
       .steps = {.dt = dt_data.data(),
                 .strides = strides(row, 1),
                 .bias = c.options ? bias_data.data() : nullptr,
                 .a = a_data.data(),
                 .least = least,
                 .most = most,
                 .softplus = c.options,
                 .type = c.type},
       .warp_specialized = c.warp_specialized,
       .skip = c.options ? skip_data.data() : nullptr,
       .initial = {initial_data.data(), c.values, 1},
       .final = {final_data.data(), 1, c.keys},
       .part_states = {cut ? part_states.data() : nullptr, 1, 64},
       .part_decays = cut ? part_decays.data() : nullptr,
       .finds_parts = cut,
       .batch = c.batch,
       .length = c.length,
       .heads = c.heads,
       .keys = c.keys,
       .values = c.values,
       .division = c.division,
       .scale = 1,
       .initial_scale = 1,
       .final_scale = 1,
       .type = thunderkittens::dtype::bfloat16});
  const auto o = o_data.get();
  const auto final = final_data.get();

  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      comparison outputs, final_states;  // of each head: those that decay much are small
      const size_t place = (size_t(b) * c.heads + h) * state;
      std::vector<double> s(initial.begin() + place, initial.begin() + place + state);
      for (int t = 0; t < c.length; ++t) {
        const size_t token = size_t(b) * c.length + t;
        const size_t key = (token * key_heads + h / c.share) * c.keys;
        const size_t value = (token * c.heads + h) * c.values;
        double step = number(dt, token * row + h);
        if (c.options) step = std::log1p(std::exp(step + bias[h]));
        step = std::clamp<double>(step, least, most);
        const double factor = std::exp(step * a[h]);
        for (int j = 0; j < c.values; ++j) {
          double want = c.options ? skip[h] * number(v, value + j) : 0;
          for (int i = 0; i < c.keys; ++i) {
            double& x = s[size_t(i) * c.values + j];
            x = factor * x + step * number(k, key + i) * number(v, value + j);
            want += x * number(q, key + i);
          }
          outputs.add(number(o, value + j), want);
        }
      }
      for (int i = 0; i < c.keys; ++i) {
        for (int j = 0; j < c.values; ++j) {
          final_states.add(final[place + size_t(j) * c.keys + i], s[size_t(i) * c.values + j]);
        }
      }
      // Weights, decayed values and states are rounded to bf16, 2⁻⁹ of each at most and uniformly,
      // and so is o.
      CHECK_CLOSE(outputs.relative(), 0.0, 0.0035);
      CHECK_CLOSE(final_states.relative(), 0.0, 0.0025);
    }
  }
}

void check(const call& c) {
  switch (c.type) {
    case thunderkittens::dtype::bfloat16: return check_of<bf16>(c);
    case thunderkittens::dtype::float16: return check_of<kittens::half>(c);
    case thunderkittens::dtype::float32: return check_of<float>(c);
  }
}

}  // namespace

TEST(pairs_of_heads) {
  check({.batch = 2, .length = 330, .heads = 4, .share = 2, .keys = 64, .values = 64});
}
// Chunks enough that every ring goes round.
TEST(warp_specialized) {
  check({.batch = 2,
         .length = 490,
         .heads = 4,
         .share = 2,
         .keys = 64,
         .values = 64,
         .warp_specialized = true});
}
TEST(warp_specialized_in_segments) {
  check({.batch = 2,
         .length = 480,
         .heads = 2,
         .share = 2,
         .keys = 40,
         .values = 56,
         .steps = -4,
         .division = {4, 2},
         .gap = 2,
         .warp_specialized = true});
}
// Of an odd number of chunks, of which the first has no other one in its pair.
TEST(odd_parts) {
  check({.batch = 1,
         .length = 700,
         .heads = 2,
         .share = 2,
         .keys = 64,
         .values = 64,
         .steps = -5,
         .a = -0.05f,
         .division = {6, 3},
         .warp_specialized = true});
}
// Every ring goes round, that of the gates, too.
TEST(long_parts) {
  check({.batch = 1,
         .length = 780,
         .heads = 2,
         .share = 2,
         .keys = 64,
         .values = 64,
         .steps = -7,
         .division = {11, 11},
         .warp_specialized = true});
}
// Some chunks are weighted by factors, and others exactly.
TEST(strong_decays_of_pairs) {
  call c = {.batch = 1,
            .length = 200,
            .heads = 6,
            .share = 6,
            .keys = 16,
            .values = 64,
            .steps = -1,
            .a = -0.9f,
            .type = thunderkittens::dtype::float16};
  check(c);
  c.warp_specialized = true;
  check(c);
}
TEST(given_steps_of_pairs) {
  check({.batch = 1,
         .length = 260,
         .heads = 2,
         .share = 2,
         .keys = 64,
         .values = 8,
         .steps = 0.01f,
         .a = -0.2f,
         .division = {2, 2},
         .type = thunderkittens::dtype::float32,
         .gap = 1,
         .options = false,
         .warp_specialized = true});
}
// Steps above 20, which softplus leaves as they are, and above the most that they may be.
TEST(one_token_of_pairs) {
  call c = {.batch = 3, .length = 1, .heads = 2, .share = 2, .keys = 64, .values = 64, .steps = 25};
  check(c);
  c.warp_specialized = true;
  check(c);
}
