// attention's gradients against double loops, in the simulator.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "attention_backward.h"
#include "harness.h"
#include "kittens.cuh"

using kittens::bf16;
using kittens::testing::buffer;
using namespace thunderkittens;

namespace {

constexpr int kWidth = CONFIGS == 0 ? 64 : 128;
constexpr int kAll = 1 << 20;

// Heads are [batch, row, head, column]; one batch's `group` heads share one of keys.
struct problem {
  int batch, rows, keys, key_heads, group, width;
  int left = kAll, right = kAll;
  bool dynamic = false, sinks = false;
  int heads() const { return key_heads * group; }
};

double wide(bf16 x) { return kittens::convert<float>(x); }
bf16 narrow(double x) { return kittens::convert<bf16>(static_cast<float>(x)); }

std::vector<bf16> random_numbers(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> numbers(count);
  for (bf16& x : numbers) x = narrow(normal(generator));
  return numbers;
}

struct matrix {
  std::vector<bf16> values;
  int length, heads, width;
  size_t at(int batch, int row, int head, int column) const {
    return ((size_t(batch) * length + row) * heads + head) * width + column;
  }
  double operator()(int batch, int row, int head, int column) const {
    return wide(values[at(batch, row, head, column)]);
  }
  attention_strides strides() const {
    return {int64_t(length) * heads * width, int64_t(heads) * width, width};
  }
};

struct expected {
  std::vector<double> dq, dk, dv, dsinks;
};

struct inputs {
  matrix q, k, v, d_o, o;
  std::vector<float> lse, dlse, sinks;
  float scale;

  explicit inputs(const problem& c) : scale(1 / std::sqrt(float(c.width))) {
    const auto make = [&](int length, int heads, unsigned seed) {
      return matrix{random_numbers(size_t(c.batch) * length * heads * c.width, seed), length, heads,
                    c.width};
    };
    q = make(c.rows, c.heads(), 1);
    k = make(c.keys, c.key_heads, 2);
    v = make(c.keys, c.key_heads, 3);
    d_o = make(c.rows, c.heads(), 4);
    o = q;
    lse.resize(size_t(c.batch) * c.heads() * c.rows);
    dlse.resize(lse.size());
    for (size_t i = 0; i < dlse.size(); ++i) dlse[i] = float(i % 7) - 3;
    for (int h = 0; h < c.heads(); ++h) sinks.push_back(c.sinks ? float(h) : -INFINITY);
  }
};

// A row: o and lse into `in`, its part of all gradients into `out`.
void add_row(const problem& c, inputs& in, expected& out, int b, int h, int i) {
  const int hk = h / c.group, diagonal = i + c.keys - c.rows;
  const int first = std::max(0, diagonal - c.left), end = std::min(c.keys, diagonal + c.right + 1);
  const size_t number = (size_t(b) * c.heads() + h) * c.rows + i;
  std::vector<double> s, output(c.width);
  double sum = std::exp(double(in.sinks[h]));
  for (int j = first; j < end; ++j) {
    double x = 0;
    for (int d = 0; d < c.width; ++d) x += in.q(b, i, h, d) * in.k(b, j, hk, d);
    s.push_back(x * in.scale);
    sum += std::exp(s.back());
  }
  const double lse = std::log(sum);
  in.lse[number] = float(lse);
  for (int j = first; j < end; ++j) {
    for (int d = 0; d < c.width; ++d) output[d] += std::exp(s[j - first] - lse) * in.v(b, j, hk, d);
  }
  double delta = -in.dlse[number];
  for (int d = 0; d < c.width; ++d) {
    in.o.values[in.o.at(b, i, h, d)] = narrow(output[d]);
    delta += in.o(b, i, h, d) * in.d_o(b, i, h, d);
  }
  if (sum == 0) return;
  out.dsinks[h] -= std::exp(in.sinks[h] - lse) * delta;
  for (int j = first; j < end; ++j) {
    double dp = 0;
    for (int d = 0; d < c.width; ++d) dp += in.d_o(b, i, h, d) * in.v(b, j, hk, d);
    const double p = std::exp(s[j - first] - lse), ds = p * (dp - delta) * in.scale;
    for (int d = 0; d < c.width; ++d) {
      out.dq[in.q.at(b, i, h, d)] += ds * in.k(b, j, hk, d);
      out.dk[in.k.at(b, j, hk, d)] += ds * in.q(b, i, h, d);
      out.dv[in.v.at(b, j, hk, d)] += p * in.d_o(b, i, h, d);
    }
  }
}

// Roundings of p, ds, o and the result to bf16 are each within 2⁻⁹, at random.
template <class T>
void check_near(const std::vector<T>& got, const std::vector<double>& want) {
  double off = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double x;
    if constexpr (std::same_as<T, bf16>) {
      x = wide(got[i]);
    } else {
      x = got[i];
    }
    off += std::isfinite(x) ? (x - want[i]) * (x - want[i]) : INFINITY;
    size += want[i] * want[i];
  }
  CHECK_EQUAL(std::sqrt(off) <= 0.01 * std::sqrt(size), true);
}

void check(const problem& c) {
  inputs in(c);
  expected want{std::vector<double>(in.q.values.size()), std::vector<double>(in.k.values.size()),
                std::vector<double>(in.v.values.size()), std::vector<double>(c.heads())};
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads(); ++h) {
      for (int i = 0; i < c.rows; ++i) add_row(c, in, want, b, h, i);
    }
  }
  const attention_backward_layout layout(c.batch, c.rows, c.keys, c.heads(), c.key_heads, c.width);
  buffer<bf16> q(in.q.values), k(in.k.values), v(in.v.values), o(in.o.values), d_o(in.d_o.values);
  buffer<bf16> dq(want.dq.size()), dk(want.dk.size()), dv(want.dv.size());
  buffer<float> lse(in.lse), dlse(in.dlse), sinks(in.sinks), dsinks(size_t(c.heads()));
  buffer<int4> memory(std::vector<int4>(layout.bytes / sizeof(int4), int4{77, 77, 77, 77}));
  buffer<int> counter(std::vector<int>{0});
  run_attention_backward({
      .q = q.data(),
      .k = k.data(),
      .v = v.data(),
      .o = o.data(),
      .d_o = d_o.data(),
      .lse = lse.data(),
      .dlse = dlse.data(),
      .sinks = c.sinks ? sinks.data() : nullptr,
      .dq = dq.data(),
      .dk = dk.data(),
      .dv = dv.data(),
      .dsinks = c.sinks ? dsinks.data() : nullptr,
      .workspace = reinterpret_cast<std::byte*>(memory.data()),
      .tile_counter = c.dynamic ? counter.data() : nullptr,
      .batch = c.batch,
      .rows = c.rows,
      .keys = c.keys,
      .heads = c.heads(),
      .key_heads = c.key_heads,
      .head_dim = c.width,
      .value_dim = c.width,
      .q_strides = in.q.strides(),
      .k_strides = in.k.strides(),
      .v_strides = in.v.strides(),
      .o_strides = in.o.strides(),
      .do_strides = in.d_o.strides(),
      .scale = in.scale,
      .softcap = 0,
      .left = c.left,
      .right = c.right,
      .type = dtype::bfloat16,
  });
  check_near(dq.get(), want.dq);
  check_near(dk.get(), want.dk);
  check_near(dv.get(), want.dv);
  if (c.sinks) check_near(dsinks.get(), want.dsinks);
  CHECK_EQUAL(counter.get()[0], 0);
}

TEST(full) { check({1, 200, 300, 1, 2, kWidth}); }
TEST(causal_with_sinks) {
  check({.batch = 2,
         .rows = 130,
         .keys = 200,
         .key_heads = 2,
         .group = 1,
         .width = kWidth - 8,
         .right = 0,
         .dynamic = true,
         .sinks = true});
}
TEST(rows_that_see_no_key) {
  check({.batch = 1,
         .rows = 200,
         .keys = 140,
         .key_heads = 1,
         .group = 1,
         .width = kWidth,
         .right = 0,
         .dynamic = true});
}
TEST(window) {
  check({.batch = 1,
         .rows = 400,
         .keys = 400,
         .key_heads = 1,
         .group = 1,
         .width = kWidth,
         .left = 70,
         .right = 10,
         .dynamic = true,
         .sinks = true});
}

}  // namespace
