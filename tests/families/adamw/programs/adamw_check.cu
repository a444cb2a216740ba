// Steps of a few parameters against the formula in double, and the numbers of stochastic rounding.
#include "adamw.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <memory>

#include <kittens.cuh>

#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr double kLr = 0.03, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-3;
constexpr uint64_t kSeed = (uint64_t{77} << 32) + 5;

struct problem {
  std::vector<int64_t> sizes;
  int64_t offset = 0;  // where all tensors start, in elements
  float step = 1;
  float norm = -1;  // below 0: none
  float max_norm = 0.5f;
  bool skip = false;
  bool nearest = false;  // where it could be stochastic
};

template <class T>
struct tensor {
  buffer<T> memory;
  std::vector<T> values;
  int64_t offset;

  tensor(int64_t offset, const std::vector<T>& given)
      : memory(shifted(offset, given)), values(given), offset(offset) {}
  T* data() const { return const_cast<T*>(memory.data()) + offset; }
  std::vector<T> after() const {
    const std::vector<T> all = memory.get();
    return {all.begin() + offset, all.end()};
  }

 private:
  static std::vector<T> shifted(int64_t offset, std::vector<T> values) {
    values.insert(values.begin(), offset, kittens::convert<T>(std::nanf("")));
    return values;
  }
};

// One parameter.
template <class P, class M, bool Master>
struct parameter {
  tensor<P> grad, param;
  tensor<M> m, v;
  tensor<float> master;
  buffer<float> step;

  parameter(int64_t size, const problem& is, unsigned seed)
      : grad(is.offset, normal_values<P>(size, seed, 0, 0.1f)),
        param(is.offset, normal_values<P>(size, seed + 1)),
        m(is.offset, normal_values<M>(size, seed + 2, 0, 0.1f)),
        v(is.offset, normal_values<M>(size, seed + 3, 1, 0.1f)),
        master(is.offset, normal_values<float>(size, seed + 1)),
        step(std::vector<float>{is.step - 1}) {}
};

// Philox, one element's word of a set.
uint32_t word_of(uint32_t step, uint32_t number, uint32_t set, int64_t i) {
  uint32_t c[4] = {uint32_t(i / 4), 0, step, 2 * number + set}, key[2] = {5, 77};
  for (int round = 0; round < 7; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ key[0], uint32_t(b),
                              uint32_t(a >> 32) ^ c[3] ^ key[1], uint32_t(a)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c[i % 4];
}

// A number of bfloat16 at or beside `want`, as `bits` choose: the nearest one to `got` of those
// that numbers within `slack` of want, which is float32's roundings, have.
double rounded(double want, uint32_t bits, double got, double slack) {
  const auto up_or_down = [&](double x) {
    const uint32_t word = std::bit_cast<uint32_t>(float(x));
    return double(std::bit_cast<float>((word + (bits & 0xffff)) & 0xffff0000u));
  };
  const auto [low, high] = std::minmax({up_or_down(want - slack), up_or_down(want + slack)});
  return std::clamp(got, low, high);
}

template <class P, class M, bool Master>
void check(adamw_form form, const problem& is) {
  const bool stochastic = std::is_same_v<M, bf16> && !is.nearest;
  using parameter = parameter<P, M, Master>;
  std::vector<std::unique_ptr<parameter>> all;
  const buffer<int> counter(std::vector<int>{0}), skipped(std::vector<int>{3});
  const buffer<float> norm(std::vector<float>{is.norm}), lr(std::vector<float>{float(kLr)});
  adamw_update_params p{
      .lr = is.norm < 0 ? nullptr : lr.data(),
      .norm = is.norm < 0 ? nullptr : norm.data(),
      .skipped = const_cast<int*>(skipped.data()),
      .counter = const_cast<int*>(counter.data()),
      .lr_value = float(is.norm < 0 ? kLr : 100),
      .beta1 = float(kBeta1),
      .beta2 = float(kBeta2),
      .rest1 = float(1 - kBeta1),
      .rest2 = float(1 - kBeta2),
      .log_beta1 = float(std::log(kBeta1)),
      .log_beta2 = float(std::log(kBeta2)),
      .eps = float(kEps),
      .weight_decay = float(kDecay),
      .sign = 1,
      .max_norm = is.max_norm,
      .skip_nonfinite = is.skip,
      .stochastic_rounding = stochastic,
      .seed = kSeed,
  };
  for (size_t i = 0; i < is.sizes.size(); ++i) {
    all.push_back(std::make_unique<parameter>(is.sizes[i], is, unsigned(10 * i + 1)));
    parameter& t = *all.back();
    adamw_entry& e = p.table.entries[i];
    e.grad = t.grad.data();
    e.param = t.param.data();
    e.exp_avg = t.m.data();
    e.exp_avg_sq = t.v.data();
    e.master = Master ? t.master.data() : nullptr;
    e.step = const_cast<float*>(t.step.data());
    e.number = uint32_t(3 * i);
    e.size = is.sizes[i];
    e.first_chunk = p.table.chunks;
    e.aligned = is.offset == 0;
    p.table.chunks += int((is.sizes[i] + kAdamwChunk - 1) / kAdamwChunk);
  }
  p.table.tensors = int(is.sizes.size());
  run_adamw(form, p);

  const bool skips = is.skip && !std::isfinite(is.norm);
  CHECK_EQUAL(counter.get()[0], 0);
  CHECK_EQUAL(skipped.get()[0], skips ? 4 : 3);
  const bool clips = is.norm >= 0 && std::isfinite(is.max_norm);
  const double factor = clips ? std::min(1.0, is.max_norm / (is.norm + 1e-6)) : 1;
  for (size_t i = 0; i < all.size(); ++i) {
    const parameter& t = *all[i];
    CHECK_EQUAL(t.step.get()[0], skips ? is.step - 1 : is.step);
    auto got_p = t.param.after();
    auto got_m = t.m.after(), got_v = t.v.after();
    auto got_w = t.master.after();
    std::vector<double> want_p, want_m, want_v, want_w;
    for (int64_t j = 0; j < is.sizes[i]; ++j) {
      const auto number = [](auto x) { return double(kittens::convert<float>(x)); };
      double m = number(t.m.values[j]), v = number(t.v.values[j]);
      double w = Master ? t.master.values[j] : number(t.param.values[j]);
      const double old = number(t.param.values[j]);
      if (!skips) {
        const double g = number(t.grad.values[j]) * factor;
        m = m + (1 - kBeta1) * (g - m);
        v = kBeta2 * v + (1 - kBeta2) * g * g;
        const double root = std::sqrt(v / (1 - std::pow(kBeta2, is.step))) + kEps;
        w -= kLr * (m / (1 - std::pow(kBeta1, is.step)) / root + kDecay * w);
      }
      if (stochastic && !skips) {
        const auto step = uint32_t(is.step), parameter_number = uint32_t(3 * i);
        const uint32_t first = word_of(step, parameter_number, 0, j);
        const uint32_t second = word_of(step, parameter_number, 1, j);
        m = rounded(m, first >> 16, number(got_m[j]), 1e-7);
        v = rounded(v, second, number(got_v[j]), 2e-7);
        w = rounded(w, first, number(got_p[j]), 1e-7);
      }
      want_m.push_back(m);
      want_v.push_back(v);
      want_w.push_back(Master ? w : t.master.values[j]);
      want_p.push_back(skips ? old : w);
    }
    // Terms of size one, and bfloat16 rounded to nearest.
    const double absolute = stochastic ? 0 : 2e-6;
    const double of_moments = is.nearest ? 1.01 * unit<M>() : 0;
    check_all("p", got_p, want_p, stochastic ? 0 : 1.01 * unit<P>(), absolute);
    check_all("m", got_m, want_m, of_moments, absolute);
    check_all("v", got_v, want_v, of_moments, absolute);
    check_all("w", got_w, want_w, 0, absolute);
  }
}

void check_floats(const problem& is) { check<float, float, false>(adamw_form::floats, is); }
void check_masters(const problem& is) { check<bf16, float, true>(adamw_form::masters, is); }
void check_stochastic(const problem& is) { check<bf16, bf16, false>(adamw_form::stochastic, is); }

// Two launches of some gradients, of which the first has `split`.
template <class T>
void check_norm(const std::vector<int64_t>& sizes, size_t split, int64_t offset, float before) {
  std::vector<std::unique_ptr<tensor<T>>> grads;
  const buffer<float> partial(2 * kAdamwNormBlocks), norm(std::vector<float>{before});
  const buffer<int> counter(std::vector<int>{0});
  double want = before * before;
  int first = 0;
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, split}, {split, sizes.size()}}) {
    const bool last = to == sizes.size();
    adamw_norm_params p{.partial = const_cast<float*>(partial.data()),
                        .norm = last ? const_cast<float*>(norm.data()) : nullptr,
                        .counter = const_cast<int*>(counter.data()),
                        .first = first,
                        .more = before > 0};
    for (size_t i = from; i < to; ++i) {
      grads.push_back(std::make_unique<tensor<T>>(offset, normal_values<T>(sizes[i], unsigned(i))));
      for (const double g : doubles(grads.back()->values)) want += g * g;
      adamw_entry& e = p.table.entries[i - from];
      e.grad = grads.back()->data();
      e.size = sizes[i];
      e.first_chunk = p.table.chunks;
      e.aligned = offset == 0;
      p.table.chunks += int((sizes[i] + kAdamwChunk - 1) / kAdamwChunk);
    }
    p.table.tensors = int(to - from);
    run_adamw_norm(std::is_same_v<T, bf16>, p);
    first += std::clamp(p.table.chunks, 1, kAdamwNormBlocks);
  }
  CHECK_EQUAL(counter.get()[0], 0);
  check_all("norm", norm.get(), {std::sqrt(want)}, 1e-6, 0);
}

}  // namespace

TEST(floats) { check_floats({{5000, 7, 0, 2048, 1}}); }
TEST(floats_that_start_anywhere) { check_floats({{2500, 9}, 1, 3}); }
TEST(many_chunks) { check_floats({{50'000, 3000}}); }
TEST(clipped) { check_floats({{2100, 5}, 0, 2, 4.0f}); }
TEST(not_clipped) { check_floats({{100}, 0, 2, 0.25f}); }
TEST(norm_without_a_limit) { check_floats({{100}, 0, 2, 4.0f, INFINITY}); }
TEST(skipped) { check_floats({{3000, 5}, 0, 2, INFINITY, 0.5f, true}); }
TEST(skipped_for_nan) { check_floats({{3000, 5}, 0, 2, NAN, INFINITY, true}); }
TEST(not_skipped) { check_floats({{300}, 0, 2, FLT_MAX, INFINITY, true}); }
TEST(many_steps) { check_floats({{64}, 0, 1000}); }
TEST(masters) { check_masters({{5000, 8, 3}}); }
TEST(masters_that_start_anywhere) { check_masters({{2500}, 3, 5, 2.0f}); }
TEST(stochastic) { check_stochastic({{4103, 9}}); }
TEST(stochastic_anywhere) { check_stochastic({{1030}, 1, 7}); }
TEST(nearest) { check_stochastic({.sizes = {1030}, .nearest = true}); }
TEST(norms) { check_norm<float>({5000, 0, 3, 20'000}, 2, 0, 0); }
TEST(norms_of_many_chunks) { check_norm<float>({2'500'000}, 0, 0, 0); }
TEST(norms_of_halves) { check_norm<bf16>({3000, 7}, 1, 0, 0); }
TEST(norms_that_start_anywhere) { check_norm<bf16>({3000, 7}, 1, 1, 0); }
TEST(norms_beside_others) { check_norm<float>({300}, 0, 0, 7); }
