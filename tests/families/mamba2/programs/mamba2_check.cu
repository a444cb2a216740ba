// The gates and one token's step against the same in double.
#include <cmath>
#include <random>
#include <vector>

#include "harness.h"
#include "kittens.cuh"
#include "mamba2.h"

using kittens::bf16;
using kittens::testing::buffer;

namespace {

std::vector<float> random_floats(size_t n, unsigned seed, float mean = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean);
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}
std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::vector<bf16> values;
  for (const float x : random_floats(n, seed)) values.push_back(kittens::convert<bf16>(x));
  return values;
}
double number(const std::vector<bf16>& x, size_t i) { return kittens::convert<float>(x[i]); }
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// By default a token and a head more than fill a tile.
void check_gates(bool by_softplus, bool biased, float least, float most, int length = 257,
                 int heads = 9) {
  constexpr int kBatch = 2;
  const int row = heads + 2;
  const size_t count = size_t{kBatch} * length * heads;
  const auto dt = random_values(size_t{kBatch} * length * row, 1);
  auto bias = random_floats(heads, 2, -6);
  if (heads > 2) bias[1] = 19, bias[2] = 0;  // where softplus ends, and where it bends
  const auto a = random_floats(heads, 3);
  const buffer<bf16> dt_data(dt);
  const buffer<float> bias_data(bias), a_data(a), steps(count), decays(count);
  run_gates({.dt = dt_data.data(),
             .dt_strides = {int64_t{length} * row, row, 1},
             .dt_bias = biased ? bias_data.data() : nullptr,
             .a = a_data.data(),
             .steps = steps.data(),
             .log_decay = decays.data(),
             .batch = kBatch,
             .length = length,
             .heads = heads,
             .dt_min = least,
             .dt_max = most,
             .softplus = by_softplus,
             .type = thunderkittens::dtype::bfloat16});
  const auto got_steps = steps.get(), got_decays = decays.get();
  for (size_t i = 0; i < count; ++i) {
    const size_t stream = i / length, head = stream % heads;
    const size_t token = stream / heads * length + i % length;
    double step = number(dt, token * row + head) + (biased ? bias[head] : 0);
    if (by_softplus) step = softplus(step);
    step = step < least ? least : step > most ? most : step;
    CHECK_CLOSE(got_steps[i], step, 3e-6 * std::abs(step));
    CHECK_CLOSE(got_decays[i], step * a[head], 3e-6 * std::abs(step * a[head]));
  }
}

// Of packed sequences: what is of none is cleared, and other rows stay as they are.
template <class Index>
void check_packed_gates(const std::vector<Index>& ends) {
  constexpr int kLength = 300, kHeads = 2, kWords = 3;
  const auto dt = random_values(kLength * kHeads, 1);
  const auto a = random_floats(kHeads, 2);
  const std::vector<float> ones(kLength * kHeads * kWords, 1);
  const buffer<bf16> dt_data(dt);
  const buffer<Index> ends_data(ends);
  const buffer<float> a_data(a), steps(kLength * kHeads), decays(kLength * kHeads), rows(ones),
      last(std::vector<float>(kLength * kHeads, 1));
  run_gates({.dt = dt_data.data(),
             .dt_strides = {0, kHeads, 1},
             .a = a_data.data(),
             .steps = steps.data(),
             .log_decay = decays.data(),
             .batch = 1,
             .length = kLength,
             .heads = kHeads,
             .dt_min = -INFINITY,
             .dt_max = INFINITY,
             .type = thunderkittens::dtype::bfloat16,
             .cu_seqlens = ends_data.data(),
             .int64_seqlens = sizeof(Index) == 8,
             .sequences = int64_t(ends.size()) - 1,
             .results = {{rows.data(), kWords}, {nullptr, 2}, {}, {}, {}, {last.data(), 1}}});
  const auto got_steps = steps.get(), got_decays = decays.get(), got_rows = rows.get(),
             got_last = last.get();
  for (int token = 0; token < kLength; ++token) {
    const bool there = ends.front() <= token && token < ends.back();
    for (int head = 0; head < kHeads; ++head) {
      const int row = token * kHeads + head, place = head * kLength + token;
      const double step = there ? number(dt, row) : 0;
      CHECK_CLOSE(got_steps[place], step, 0);
      CHECK_CLOSE(got_decays[place], step * a[head], 1e-6 * std::abs(step * a[head]));
      for (int i = 0; i < kWords; ++i) CHECK_CLOSE(got_rows[row * kWords + i], double(there), 0);
      CHECK_CLOSE(got_last[row], double(there), 0);
    }
  }
}

struct call {
  int height, width;     // P, N
  bool options = false;  // D, z, bias and softplus
  int indices = 0;       // bytes of one; 0: none
  bool float_dt = false;
};

void check_step(const call& c) {
  constexpr int kBatch = 3, kHeads = 4, kGroups = 2, kStates = 5;
  const int64_t row = c.width, of_head = c.height * row, of_state = kHeads * of_head;
  const auto x = random_values(kBatch * kHeads * c.height, 1),
             z = random_values(kBatch * kHeads * c.height, 2),
             b = random_values(kBatch * kGroups * c.width, 3),
             of_c = random_values(kBatch * kGroups * c.width, 4),
             dt = random_values(kBatch * kHeads, 5);
  auto bias = random_floats(kHeads, 6), a = random_floats(kHeads, 7), d = random_floats(kHeads, 8);
  for (float& value : a) value = -std::abs(value);
  const auto state = random_floats(kStates * of_state, 9);
  const auto dt_floats = random_floats(kBatch * kHeads, 10);
  const std::vector<int64_t> slots =
      c.indices > 0 ? std::vector<int64_t>{3, kStates, 1} : std::vector<int64_t>{0, 1, 2};
  const buffer<bf16> x_data(x), z_data(z), b_data(b), c_data(of_c), dt_data(dt), y_data(x.size());
  const buffer<float> bias_data(bias), a_data(a), d_data(d), state_data(state), floats(dt_floats);
  const buffer<int64_t> long_data(slots);
  const buffer<int32_t> int_data(std::vector<int32_t>(slots.begin(), slots.end()));
  const void* const indices = c.indices == 0   ? nullptr
                              : c.indices == 8 ? static_cast<const void*>(long_data.data())
                                               : int_data.data();
  const thunderkittens::mamba2_step_strides of_x{kHeads * c.height, c.height},
      of_b{kGroups * c.width, c.width};
  run_step({.problem = {.batch = kBatch,
                        .heads = kHeads,
                        .groups = kGroups,
                        .head_width = c.height,
                        .state_width = c.width,
                        .states = kStates,
                        .x_strides = of_x,
                        .b_strides = of_b,
                        .c_strides = of_b,
                        .z_strides = of_x,
                        .dt_strides = {kHeads, 1},
                        .state_stride = of_state,
                        .state_head_stride = of_head,
                        .state_row_stride = row,
                        .softplus = c.options,
                        .int64_indices = c.indices == 8,
                        .type = thunderkittens::dtype::bfloat16,
                        .dt_type = c.float_dt ? thunderkittens::dtype::float32
                                              : thunderkittens::dtype::bfloat16},
            .tensors = {.x = x_data.data(),
                        .dt = c.float_dt ? static_cast<const void*>(floats.data()) : dt_data.data(),
                        .a = a_data.data(),
                        .b = b_data.data(),
                        .c = c_data.data(),
                        .y = y_data.data(),
                        .state = state_data.data(),
                        .d = c.options ? d_data.data() : nullptr,
                        .z = c.options ? z_data.data() : nullptr,
                        .dt_bias = c.options ? bias_data.data() : nullptr,
                        .state_indices = indices}});
  const auto y = y_data.get();
  const auto states = state_data.get();
  std::vector<double> want(state.begin(), state.end());
  for (int batch = 0; batch < kBatch; ++batch) {
    for (int head = 0; head < kHeads; ++head) {
      const int at = batch * kHeads + head, group = batch * kGroups + head / (kHeads / kGroups);
      double step = c.float_dt ? double(dt_floats[at]) : number(dt, at);
      if (c.options) step = softplus(step + bias[head]);
      for (int p = 0; p < c.height; ++p) {
        const size_t place = size_t(at) * c.height + p;
        double sum = 0, size = 0;
        for (int n = 0; n < c.width && slots[batch] < kStates; ++n) {
          double& s = want[slots[batch] * of_state + head * of_head + p * row + n];
          s = std::exp(step * a[head]) * s +
              step * number(x, place) * number(b, size_t(group) * c.width + n);
          sum += s * number(of_c, size_t(group) * c.width + n);
          size += std::abs(s * number(of_c, size_t(group) * c.width + n));
        }
        if (c.options && slots[batch] < kStates) {
          sum += d[head] * number(x, place);
          const double gate = number(z, place) / (1 + std::exp(-number(z, place)));
          sum *= gate;
          size = (size + std::abs(d[head] * number(x, place))) * std::abs(gate);
        }
        CHECK_CLOSE(number(y, place), sum, 0.004 * std::abs(sum) + 1e-5 * size);
      }
    }
  }
  for (size_t i = 0; i < want.size(); ++i) {
    CHECK_CLOSE(states[i], want[i], 1e-5 * (1 + std::abs(want[i])));
  }
}

}  // namespace

TEST(gates) { check_gates(true, true, 0, INFINITY); }
TEST(gates_with_limits) { check_gates(false, false, 0.25f, 1.0f); }
TEST(gates_with_a_bias_alone) { check_gates(false, true, 0, 15); }
TEST(gates_of_whole_tiles) { check_gates(true, true, 0, INFINITY, 256, 8); }
TEST(gates_of_one_token_and_head) { check_gates(true, true, 0, INFINITY, 1, 1); }
TEST(gates_of_packed_sequences) { check_packed_gates<int32_t>({3, 70, 70, 290}); }
TEST(gates_of_packed_sequences_by_long_ends) { check_packed_gates<int64_t>({0, 1, 257}); }
TEST(gates_of_packed_sequences_of_no_token) { check_packed_gates<int32_t>({0, 0}); }
TEST(step_of_64) { check_step({.height = 40, .width = 64, .options = true}); }
TEST(step_of_whole_blocks) { check_step({.height = 64, .width = 64}); }
TEST(step_of_128_by_index) {
  check_step({.height = 18, .width = 128, .indices = 4, .float_dt = true});
}
TEST(step_of_256) { check_step({.height = 9, .width = 200, .options = true, .indices = 8}); }
TEST(step_of_few) { check_step({.height = 33, .width = 24}); }
TEST(step_of_odd) { check_step({.height = 5, .width = 35, .options = true}); }
