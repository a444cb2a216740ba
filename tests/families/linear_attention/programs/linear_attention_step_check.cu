// The kernel of one token against its definition in double.
#include <cmath>
#include <random>
#include <vector>

#include "harness.h"
#include "kittens.cuh"
#include "linear_attention_step.h"

using kittens::bf16;
using kittens::testing::buffer;

namespace {

struct call {
  int batch, heads, share, keys, values;  // share: heads that have q and k in common
  bool decays = true;
  std::vector<int64_t> slots = {};  // empty: no indices
  int states = 0;                   // where there are
  bool int64_indices = false;
  int gap = 0;  // floats between the rows of a state
};

std::vector<float> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values)
    value = kittens::convert<float>(kittens::convert<bf16>(normal(generator)));
  return values;
}
std::vector<bf16> in_bf16(const std::vector<float>& x) {
  std::vector<bf16> values(x.size());
  for (size_t i = 0; i < x.size(); ++i) values[i] = kittens::convert<bf16>(x[i]);
  return values;
}

void check(const call& c) {
  const int key_heads = c.heads / c.share, states = c.slots.empty() ? c.batch : c.states;
  const size_t row = size_t(c.values) + c.gap, head = row * c.keys, state = head * c.heads;
  const auto q = random_values(size_t(c.batch) * key_heads * c.keys, 1);
  const auto k = random_values(q.size(), 2);
  const auto v = random_values(size_t(c.batch) * c.heads * c.values, 3);
  std::vector<float> before = random_values(state * states, 4), decay(size_t(c.batch) * c.heads);
  for (size_t i = 0; i < decay.size(); ++i) decay[i] = -0.1f * float(i + 1);
  const std::vector<int32_t> narrow(c.slots.begin(), c.slots.end());

  const buffer<bf16> q_data(in_bf16(q)), k_data(in_bf16(k)), v_data(in_bf16(v)), o_data(v.size());
  const buffer<float> decay_data(decay), state_data(before);
  const buffer<int32_t> narrow_data(narrow);
  const buffer<int64_t> wide_data(c.slots);
  const void* const indices = c.int64_indices ? static_cast<const void*>(wide_data.data())
                                              : static_cast<const void*>(narrow_data.data());
  const auto strides = [](int heads, int width) {
    return thunderkittens::linear_attention_step_strides{int64_t{heads} * width, width, 1};
  };
  const float scale = 0.25f;
  run({.problem = {.batch = c.batch,
                   .heads = c.heads,
                   .key_heads = key_heads,
                   .key_width = c.keys,
                   .value_width = c.values,
                   .states = states,
                   .q_strides = strides(key_heads, c.keys),
                   .k_strides = strides(key_heads, c.keys),
                   .v_strides = strides(c.heads, c.values),
                   .state_stride = int64_t(state),
                   .state_head_stride = int64_t(head),
                   .state_key_stride = int64_t(row),
                   .decay_batch_stride = c.heads,
                   .decay_head_stride = 1,
                   .int64_indices = c.int64_indices,
                   .scale = scale,
                   .type = thunderkittens::dtype::bfloat16},
       .tensors = {.q = q_data.data(),
                   .k = k_data.data(),
                   .v = v_data.data(),
                   .o = o_data.data(),
                   .state = state_data.data(),
                   .log_decay = c.decays ? decay_data.data() : nullptr,
                   .state_indices = c.slots.empty() ? nullptr : indices}});
  const auto o = o_data.get();
  const auto after = state_data.get();

  for (int b = 0; b < c.batch; ++b) {
    const int64_t slot = c.slots.empty() ? b : c.slots[b];
    const bool is_padding = slot < 0 || slot >= states;
    for (int h = 0; h < c.heads; ++h) {
      const size_t token = size_t(b) * c.heads + h;
      const size_t key = (size_t(b) * key_heads + h / c.share) * c.keys;
      const double factor = c.decays ? std::exp(double(decay[token])) : 1;
      for (int j = 0; j < c.values; ++j) {
        const float got = kittens::convert<float>(o[token * c.values + j]);
        if (is_padding) {
          CHECK_EQUAL(got, 0.0f);
          continue;
        }
        double want = 0, size = 0;
        for (int i = 0; i < c.keys; ++i) {
          float& x = before[slot * state + h * head + i * row + j];
          const double next = factor * x + double(k[key + i]) * v[token * c.values + j];
          want += scale * next * q[key + i];
          size += std::abs(scale * next * q[key + i]);
          // Of numbers up to 10, a few roundings to float; what follows is compared with that.
          CHECK_CLOSE(after[slot * state + h * head + i * row + j], next, 1e-5);
          x = after[slot * state + h * head + i * row + j];
        }
        CHECK_CLOSE(got, want, std::abs(want) / 256 + 1e-5 * size);
      }
    }
  }
  // All that no token updates, gaps too, is as it was.
  for (size_t i = 0; i < after.size(); ++i) {
    if (!(after[i] == before[i])) CHECK_CLOSE(after[i], before[i], 0.0);
  }
}

}  // namespace

TEST(keys_of_one_pass) { check({.batch = 2, .heads = 2, .share = 1, .keys = 64, .values = 36}); }
TEST(keys_of_two_passes_that_are_shared) {
  check({.batch = 1, .heads = 4, .share = 2, .keys = 140, .values = 40});
}
TEST(a_few_keys) {
  check({.batch = 2, .heads = 1, .share = 1, .keys = 5, .values = 8, .decays = false});
}
TEST(the_most_keys) { check({.batch = 1, .heads = 2, .share = 1, .keys = 256, .values = 64}); }
TEST(single_floats) {
  check({.batch = 1, .heads = 2, .share = 2, .keys = 37, .values = 33, .gap = 2});
}
TEST(slots) {
  check({.batch = 5,
         .heads = 2,
         .share = 1,
         .keys = 8,
         .values = 36,
         .slots = {3, -1, 0, 4, 6},
         .states = 6,
         .gap = 4});
}
TEST(slots_of_64_bits) {
  check({.batch = 3,
         .heads = 1,
         .share = 1,
         .keys = 12,
         .values = 4,
         .slots = {2, int64_t{1} << 32, 1},
         .states = 3,
         .int64_indices = true});
}
