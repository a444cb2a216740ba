// The kernel's passes against sums over all pairs of tokens in double.
#include <cmath>
#include <random>
#include <vector>

#include "based_attention.h"
#include "comparison.h"
#include "harness.h"
#include "kittens.cuh"

using kittens::bf16;
using kittens::testing::buffer;
using kittens::testing::comparison;

namespace {

struct call {
  int batch, length, heads, keys, values;
  bool normalize;
  int segment_chunks = 100;
};

constexpr float kScale = 0.3f;

std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(n);
  for (bf16& value : values) value = kittens::convert<bf16>(normal(generator));
  return values;
}

// Rows of one head of a tensor [batch, length, heads, width], in double.
struct head_of {
  const call& c;
  const std::vector<bf16>& data;
  int width, batch, head;
  double operator()(int token, int i) const {
    const size_t row = (size_t(batch) * c.length + token) * c.heads + head;
    return kittens::convert<float>(data[row * width + i]);
  }
};

// φ of a token, as the state has its rows.
std::vector<double> features(const call& c, const head_of& x, int token) {
  std::vector<double> phi{1};
  for (int e = 0; e < c.keys; ++e) phi.push_back(std::sqrt(double(kScale)) * x(token, e));
  for (int e = 0; e < c.keys; ++e) {
    for (int f = e; f < c.keys; ++f) {
      phi.push_back((e == f ? std::sqrt(0.5) : 1) * kScale * x(token, e) * x(token, f));
    }
  }
  return phi;
}

// What a head should give: and the states that the passes leave, of k and v, and in reverse of q
// and the gradients.
struct results {
  std::vector<double> o, dq, dk, dv;
  std::vector<double> state, sums, d_state, d_sums;

  results(const call& c, const head_of& q, const head_of& k, const head_of& v, const head_of& d_o)
      : o(size_t(c.length) * c.values),
        dq(size_t(c.length) * c.keys),
        dk(dq.size()),
        dv(o.size()),
        sums(thunderkittens::based_attention_features(c.keys)),
        d_sums(sums.size()) {
    state.resize(sums.size() * c.values);
    d_state.resize(state.size());
    for (int i = 0; i < c.length; ++i) {
      std::vector<double> s(i + 1);
      double denominator = c.normalize ? 0 : 1, of_denominator = 0;
      for (int j = 0; j <= i; ++j) {
        for (int e = 0; e < c.keys; ++e) s[j] += kScale * q(i, e) * k(j, e);
        const double weight = 1 + s[j] + s[j] * s[j] / 2;
        if (c.normalize) denominator += weight;
        for (int w = 0; w < c.values; ++w) o[size_t(i) * c.values + w] += weight * v(j, w);
      }
      for (int w = 0; w < c.values; ++w) {
        double& y = o[size_t(i) * c.values + w];
        y /= denominator;
        if (c.normalize) of_denominator -= d_o(i, w) * y / denominator;
      }
      const auto of_k = features(c, k, i), of_q = features(c, q, i);
      for (size_t f = 0; f < sums.size(); ++f) {
        sums[f] += of_k[f];
        d_sums[f] += of_q[f] * of_denominator;
        for (int w = 0; w < c.values; ++w) {
          state[f * c.values + w] += of_k[f] * v(i, w);
          d_state[f * c.values + w] += of_q[f] * d_o(i, w) / denominator;
        }
      }
      for (int j = 0; j <= i; ++j) {
        double d_weight = of_denominator;
        for (int w = 0; w < c.values; ++w) {
          d_weight += d_o(i, w) * v(j, w) / denominator;
          dv[size_t(j) * c.values + w] += (1 + s[j] + s[j] * s[j] / 2) * d_o(i, w) / denominator;
        }
        for (int e = 0; e < c.keys; ++e) {
          dq[size_t(i) * c.keys + e] += kScale * d_weight * (1 + s[j]) * k(j, e);
          dk[size_t(j) * c.keys + e] += kScale * d_weight * (1 + s[j]) * q(i, e);
        }
      }
    }
  }
};

void check(const call& c) {
  using enum thunderkittens::based_attention_pass;
  const size_t tokens = size_t(c.batch) * c.length * c.heads;
  const auto q = random_values(tokens * c.keys, 1), k = random_values(tokens * c.keys, 2);
  const auto v = random_values(tokens * c.values, 3), d_o = random_values(tokens * c.values, 4);
  const int chunks = (c.length + 63) / 64;
  const int segments = (chunks + c.segment_chunks - 1) / c.segment_chunks;
  const size_t sums = size_t(c.batch) * c.heads * thunderkittens::based_attention_features(c.keys);

  const buffer<bf16> q_data(q), k_data(k), v_data(v), do_data(d_o);
  const buffer<bf16> o_data(v.size()), dq_data(q.size()), dk_data(k.size()), dv_data(v.size());
  const buffer<float> segment_states(segments * sums * c.values), segment_sums(segments * sums);
  const buffer<float> states(sums * c.values), state_sums(sums), d_states(sums * c.values),
      d_sums(sums);
  const buffer<float> factors(size_t(2) * c.batch * c.heads * chunks * 64);
  const auto operand = [&](const buffer<bf16>& of, int width) {
    return thunderkittens::based_attention_operand{
        of.data(), {int64_t{c.length} * c.heads * width, int64_t{c.heads} * width, width}};
  };
  for (const auto pass : {forward, dq, dk_dv}) {
    const bool reverse = pass == dk_dv;
    thunderkittens::based_attention_params p{
        .pass = pass,
        .k = operand(reverse ? q_data : k_data, c.keys),
        .v = operand(reverse ? do_data : v_data, c.values),
        .row_keys = operand(reverse ? k_data : q_data, c.keys),
        .row_values = operand(reverse ? v_data : do_data, c.values),
        .o = pass == forward ? o_data.data()
             : reverse       ? dv_data.data()
                             : nullptr,
        .key_gradients = pass == dq ? dq_data.data()
                         : reverse  ? dk_data.data()
                                    : nullptr,
        .final_state = pass == forward ? states.data()
                       : reverse       ? d_states.data()
                                       : nullptr,
        .final_sums = pass == forward ? state_sums.data()
                      : reverse       ? d_sums.data()
                                      : nullptr,
        .segment_states = segments > 1 ? segment_states.data() : nullptr,
        .segment_sums = segments > 1 ? segment_sums.data() : nullptr,
        .factors = factors.data(),
        .batch = c.batch,
        .length = c.length,
        .heads = c.heads,
        .keys = c.keys,
        .values = c.values,
        .segment_chunks = c.segment_chunks,
        .scale = kScale,
        .eps = 0,
        .normalize = c.normalize,
        .type = thunderkittens::dtype::bfloat16};
    run(p);
  }

  comparison of_o, of_dq, of_dk, of_dv, of_states, of_sums, of_d_states, of_d_sums;
  const auto got_states = states.get(), got_sums = state_sums.get(), got_d_states = d_states.get(),
             got_d_sums = d_sums.get();
  const auto o = o_data.get(), got_dq = dq_data.get(), got_dk = dk_data.get(),
             got_dv = dv_data.get();
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      const auto head = [&](const std::vector<bf16>& of, int width) {
        return head_of{c, of, width, b, h};
      };
      const results want(c, head(q, c.keys), head(k, c.keys), head(v, c.values),
                         head(d_o, c.values));
      const auto compare = [&](comparison& to, const std::vector<bf16>& got, int width,
                               const std::vector<double>& all) {
        for (int t = 0; t < c.length; ++t) {
          for (int i = 0; i < width; ++i) {
            to.add(head(got, width)(t, i), all[size_t(t) * width + i]);
          }
        }
      };
      compare(of_o, o, c.values, want.o);
      compare(of_dq, got_dq, c.keys, want.dq);
      compare(of_dk, got_dk, c.keys, want.dk);
      compare(of_dv, got_dv, c.values, want.dv);
      const size_t head_index = size_t(b) * c.heads + h;
      const auto compare_state = [&](comparison& to, const std::vector<float>& got,
                                     const std::vector<double>& all) {
        for (size_t i = 0; i < all.size(); ++i) to.add(got[head_index * all.size() + i], all[i]);
      };
      compare_state(of_states, got_states, want.state);
      compare_state(of_d_states, got_d_states, want.d_state);
      if (!c.normalize) continue;
      compare_state(of_sums, got_sums, want.sums);
      compare_state(of_d_sums, got_d_sums, want.d_sums);
    }
  }
  // Weights, features, states and results are rounded to bf16, 2⁻⁹ of each at most and uniformly.
  for (const comparison& each : {of_o, of_dq, of_dk, of_dv, of_states, of_d_states}) {
    CHECK_CLOSE(each.relative(), 0.0, 0.0042);
  }
  if (c.normalize) CHECK_CLOSE(of_sums.relative(), 0.0, 0.0042);
  if (c.normalize) CHECK_CLOSE(of_d_sums.relative(), 0.0, 0.0042);
}

}  // namespace

TEST(normalized) {
  check({.batch = 2, .length = 200, .heads = 2, .keys = 16, .values = 64, .normalize = true});
}
TEST(not_normalized) {
  check({.batch = 1, .length = 130, .heads = 2, .keys = 16, .values = 40, .normalize = false});
}
// Of more chunks than there are stages.
TEST(segments) {
  check({.batch = 1,
         .length = 530,
         .heads = 2,
         .keys = 8,
         .values = 24,
         .normalize = true,
         .segment_chunks = 4});
}
