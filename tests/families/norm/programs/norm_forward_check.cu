// Small calls of the norms' forward against the formula in double.
#include <kittens.cuh>

#include "norm_formula.h"
#include "norm_forward.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;
using kittens::half;

namespace {

using enum forward_form;

// Parameters of the element type, float parameters, no bias, or none; `moments`: mean and rstd are
// wanted.
enum class parameters { own, floats, weight, none };

struct problem {
  forward_form form;
  int64_t rows, width, x_stride;
  parameters kind;
  bool moments = true;
  float mean = 0, deviation = 1, eps = 1e-5f, offset = 0;
  bool round_first = false;
  double p = 0;     // of dropout
  float slope = 0;  // by how much a row's mean is above that of the row before
};

constexpr int64_t kSeed = 0x123456789abcdef;

template <class T>
constexpr dtype kType = std::is_same_v<T, float>  ? dtype::float32
                        : std::is_same_v<T, half> ? dtype::float16
                                                  : dtype::bfloat16;

template <class T, class R = T>
void check(const problem& is) {
  const auto is_one_of = [&](auto... forms) { return ((is.form == forms) || ...); };
  const bool adds = is_one_of(add_rows, add_rms_rows, add_long, any_add, any_add_rms);
  const bool rms = is_one_of(rms_rows, rms_long, add_rms_rows, any_rms, any_add_rms);
  auto xs = normal_values<T>(is.rows * is.x_stride, 1, is.mean, is.deviation);
  for (size_t i = 0; i < xs.size(); ++i) {
    const float above = is.slope * float(i / is.x_stride);
    xs[i] = kittens::convert<T>(kittens::convert<float>(xs[i]) + above);
  }
  const auto residuals = normal_values<R>(is.rows * is.x_stride, 4);
  const auto weights = normal_values<T>(is.width, 2, 1), biases = normal_values<T>(is.width, 3);
  auto wd = doubles(weights), bd = doubles(biases);
  const buffer<T> x(xs), weight(weights), bias(biases), y(is.rows * is.width);
  const buffer<R> residual(residuals), sum(is.rows * is.width);
  const buffer<float> weight_in_float(std::vector<float>(wd.begin(), wd.end()));
  const buffer<float> bias_in_float(std::vector<float>(bd.begin(), bd.end()));
  const buffer<float> mean(is.rows), rstd(is.rows);
  const buffer<int64_t> seed(std::vector<int64_t>{kSeed});
  const bool none = is.kind == parameters::none, floats = is.kind == parameters::floats;
  const dtype own = kType<T>;
  const dtype type = floats ? dtype::float32 : own;
  const auto pick = [&](const void* of_own, const void* of_float) {
    return none ? nullptr : floats ? of_float : of_own;
  };
  norm_forward_params p{};
  p.x = x.data(), p.y = y.data();
  p.weight = pick(weight.data(), weight_in_float.data());
  const bool biased = !rms && !none && is.kind != parameters::weight;
  if (biased) p.bias = pick(bias.data(), bias_in_float.data());
  if (adds) p.residual = residual.data(), p.sum = sum.data();
  if (is.moments && !rms) p.mean = mean.data();
  if (is.moments) p.rstd = rstd.data();
  p.rows = is.rows, p.width = is.width, p.x_rows = {is.x_stride}, p.residual_stride = is.x_stride;
  p.eps = is.eps, p.weight_offset = none ? 0.0f : is.offset, p.round_first = is.round_first;
  if (is.p > 0) p.dropout = dropout_params::of(is.p, seed.data());
  p.type = own, p.weight_type = p.bias_type = type;
  p.residual_type = kType<R>;
  run_forward(is.form, p);

  numbers s = packed(doubles(xs), is.rows, is.width, is.x_stride);
  if (adds) {
    const numbers factor = dropout_factors(is.rows * is.width, kSeed, is.p);
    const numbers more = packed(doubles(residuals), is.rows, is.width, is.x_stride);
    for (size_t i = 0; i < s.size(); ++i) s[i] = s[i] * factor[i] + more[i];
    check_all("sum", sum.get(), s, unit<R>(), 4 * unit<float>());
  }
  for (double& w : wd) w = none ? 1 : w + is.offset;
  for (double& b : bd) b = biased ? b : 0;
  const norm_outputs want = normalize(s, is.width, !rms, is.eps, wd, bd);
  // y in float is right to some units of its largest terms, and then it is rounded once, or twice.
  check_all("y", y.get(), want.y, (is.round_first ? 2 : 1) * unit<T>(), 64 * unit<float>());
  if (is.round_first) {
    const numbers ones(is.width, 1), zeros(is.width, 0);
    check_rounded_twice(y.get(), normalize(s, is.width, !rms, is.eps, ones, zeros).y, wd);
  }
  if (!is.moments) return;
  if (!rms)
    check_all("mean", mean.get(), want.mean, 2 * unit<float>(), 8 * unit<float>() * is.deviation);
  check_all("rstd", rstd.get(), want.rstd, 64 * unit<float>(), 0);
}

}  // namespace

// How many columns a warp has at most.
constexpr int64_t kWarpColumns = 512;

// Rows of 1 … 5 and 8 warps, of which the last lacks `lacks` columns: its sums are beside those of
// the others, in whole fours and not.
template <class T, class R = T>
void check_warps(problem is, int64_t lacks) {
  for (const int64_t warps : {1, 2, 3, 4, 5, 8}) {
    is.width = warps * kWarpColumns - lacks;
    is.x_stride = is.width + 16;
    check<T, R>(is);
  }
}

TEST(rows_of_a_warp_each) { check<bf16>({rows_of_a_warp, 7, 504, 512, parameters::own}); }
TEST(whole_rows_of_a_warp_each) { check<bf16>({rows_of_a_warp, 5, 512, 520, parameters::own}); }
TEST(a_row_of_a_warp) { check<bf16>({rows, 3, 264, 272, parameters::own, true, 3}); }
TEST(whole_rows) { check_warps<bf16>({rows, 2, 0, 0, parameters::own, true, 3}, 0); }
TEST(whole_rows_of_float_parameters) {
  check<bf16>({rows, 3, 1536, 1544, parameters::floats, true, 3});
}
TEST(whole_rows_without_parameters) { check<bf16>({rows, 3, 512, 512, parameters::none, false}); }
TEST(rows_without_parameters) { check<bf16>({rows, 3, 1000, 1008, parameters::none}); }
TEST(rows_that_lack_columns) { check_warps<bf16>({rows, 2, 0, 0, parameters::own, true, 3}, 8); }
TEST(rows_of_early_weights) {
  check<bf16>({rows_of_early_weights, 2, 2560, 2568, parameters::own, true, 3});
  check<bf16>({rows_of_early_weights, 2, 1288, 1288, parameters::weight});
}
TEST(rows_of_five_warps_at_most) {
  check<float>({rows_of_five_warps, 2, 2560, 2564, parameters::own, true, 3});
  check<float>({rows_of_five_warps, 2, 2564 - 512, 2564, parameters::weight, true, 3});
}
TEST(no_bias) { check<bf16>({rows, 3, 1000, 1008, parameters::weight}); }
TEST(two_warps_of_a_row) { check<bf16>({rows, 5, 1000, 1008, parameters::floats}); }
TEST(a_last_warp_of_few_columns) { check<bf16>({rows, 4, 1032, 1032, parameters::own, true, 3}); }
TEST(rows_of_different_means) {
  check<bf16>({rows, 7, 1032, 1032, parameters::own, true, 0, 1, 1e-5f, 0, false, 0, 100});
}
TEST(single_elements_with_a_large_mean) {
  check<float>({single_elements, 7, 299, 301, parameters::own, true, 1e5f});
}
TEST(whole_rows_of_single_elements) {
  check<float>({single_elements, 2, 1536, 1537, parameters::own, true, 1e5f});
}
TEST(equal_values) {
  check<float>({single_elements, 3, 33, 33, parameters::floats, true, 5, 0, 1e-40f});
  check<float>({single_elements, 3, 33, 33, parameters::floats, true, 5, 0, 0});
}
TEST(rows_of_any_element) {
  check<bf16>({any, 3, 1536, 1544, parameters::floats, true, 3});
  check<bf16>({any, 3, 512, 512, parameters::none, false});
  check<bf16, float>({any_add_rms, 3, 1200, 1208, parameters::own});
  check<half>({any, 3, 1000, 1008, parameters::own, true, 3});
  check<half>({any, 3, 1023, 1025, parameters::weight, true, 3});
  check<half>({any_rms, 3, 777, 779, parameters::own, true, 3, 1, 1e-5f, 1, true});
  check<float>({any_add_rms, 3, 1021, 1023, parameters::own});
}
TEST(long_rows) {
  check<bf16>({long_rows, 3, 2152, 2160, parameters::own});
  check<bf16>({long_rows, 2, 1544, 1544, parameters::none, false});
  check<bf16>({rms_long, 3, 2152, 2160, parameters::own, true, 3, 1, 1e-5f, -0.5f});
  check<bf16>({add_long, 3, 2152, 2160, parameters::floats, true, 0, 1, 1e-5f, 0, false, 0.3});
}
TEST(wide_rows) { check<bf16>({any, 3, 2152, 2160, parameters::own}); }
TEST(wide_rows_without_moments) { check<bf16>({any, 2, 1544, 1544, parameters::none, false}); }
TEST(wide_rows_whose_last_warp_has_one_column) {
  check<float>({any, 2, 1281, 1281, parameters::own, true, 1e5f});
}
TEST(rms_rows_with_an_offset) {
  check<bf16>({rms_rows, 5, 1032, 1040, parameters::own, true, 3, 1, 1e-5f, 1, true});
}
TEST(whole_rms_rows) {
  check_warps<bf16>({rms_rows, 2, 0, 0, parameters::own, true, 3, 1, 1e-5f, 1, true}, 0);
}
TEST(rms_rows_that_lack_columns) {
  check_warps<bf16>({rms_rows, 2, 0, 0, parameters::own, true, 3, 1, 1e-5f, 0.5f}, 504);
}
TEST(rms_rows_of_floats) { check<bf16>({rms_rows, 3, 1200, 1200, parameters::floats, true, 3}); }
TEST(wide_rms_rows) {
  check<bf16>({any_rms, 3, 2152, 2160, parameters::own, true, 3, 1, 1e-5f, -0.5f});
}
TEST(sums_in_float) { check<bf16, float>({add_rms_rows, 5, 1200, 1208, parameters::own}); }
TEST(whole_sums) {
  check<bf16, float>(
      {add_rms_rows, 3, 1024, 1032, parameters::own, true, 0, 1, 1e-5f, 0, false, 0.4});
  check<bf16>({add_rows, 3, 512, 520, parameters::weight});
}
TEST(sums_in_float_with_dropout) {
  check<bf16, float>(
      {any_add_rms, 4, 520, 528, parameters::none, false, 0, 1, 1e-5f, 0, false, 0.4});
}
TEST(sums_with_dropout) {
  check<bf16>(
      {add_rows, 7, 600, 608, parameters::own, true, 0, 1, 1e-5f, 0, false, just_keeps(5, kSeed)});
}
TEST(sums_of_single_elements_with_dropout) {
  check<float>({any_add, 3, 515, 517, parameters::floats, true, 0, 1, 1e-5f, 0, false, 0.3});
}
TEST(dropout_of_far_elements) {
  const buffer<int64_t> seed(std::vector<int64_t>{kSeed});
  for (const int64_t first : {int64_t{1} << 34, (int64_t{5} << 40) + 12}) {
    numbers want;
    for (int i = 0; i < 4; ++i) want.push_back(dropout_number(first + i, kSeed) >> 31 ? 2 : 0);
    const buffer<float> factor(4);
    run_factors(dropout_params::of(0.5, seed.data()), first, factor.data());
    check_all("factor", factor.get(), want, 0, 0);
  }
}
TEST(wide_sums_with_dropout) {
  check<bf16>({any_add, 3, 2152, 2160, parameters::floats, true, 0, 1, 1e-5f, 0, false, 0.3});
}
TEST(wide_sums_of_single_elements_with_dropout) {
  check<float>(
      {any_add, 3, 1281, 1283, parameters::own, true, 0, 1, 1e-5f, 0, false, just_keeps(5, kSeed)});
}
