// Small calls of layer_norm's forward against the formula in double.
#include <kittens.cuh>
#include <limits>

#include "layer_norm_forward.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

// Parameters of the element type, float parameters, or none; `moments`: mean and rstd are wanted.
enum class parameters { own, floats, none };

struct problem {
  forward_form form;
  int64_t rows, width, x_stride;
  parameters kind;
  bool moments = true;
  float mean = 0, deviation = 1, eps = 1e-5f;
};

struct outputs {
  std::vector<double> y, mean, rstd;
};

outputs normalize(const problem& is, const std::vector<double>& x, const std::vector<double>& w,
                  const std::vector<double>& b) {
  outputs want;
  for (int64_t r = 0; r < is.rows; ++r) {
    const double* row = &x[r * is.x_stride];
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < is.width; ++c) mean += row[c];
    mean /= static_cast<double>(is.width);  // exact for equal values
    for (int64_t c = 0; c < is.width; ++c) {
      variance += (row[c] - mean) * (row[c] - mean) / is.width;
    }
    // Subnormal numbers are zero to the root, but no positive eps may make it infinite.
    const double smallest = is.eps > 0 ? double{std::numeric_limits<float>::min()} : 0;
    const double rstd = 1 / std::sqrt(std::max(variance + is.eps, smallest));
    for (int64_t c = 0; c < is.width; ++c) want.y.push_back((row[c] - mean) * rstd * w[c] + b[c]);
    want.mean.push_back(mean);
    want.rstd.push_back(rstd);
  }
  return want;
}

template <class T>
void check(const problem& is) {
  const auto xs = normal_values<T>(is.rows * is.x_stride, 1, is.mean, is.deviation);
  const auto weights = normal_values<T>(is.width, 2, 1), biases = normal_values<T>(is.width, 3);
  const auto wd = doubles(weights), bd = doubles(biases);
  const std::vector<double> ones(is.width, 1), zeros(is.width, 0);
  const buffer<T> x(xs), weight(weights), bias(biases), y(is.rows * is.width);
  const buffer<float> wide_weight(std::vector<float>(wd.begin(), wd.end()));
  const buffer<float> wide_bias(std::vector<float>(bd.begin(), bd.end()));
  const buffer<float> mean(is.rows), rstd(is.rows);
  const bool none = is.kind == parameters::none, floats = is.kind == parameters::floats;
  const dtype own = std::is_same_v<T, float> ? dtype::float32 : dtype::bfloat16;
  const dtype type = floats ? dtype::float32 : own;
  const auto pick = [&](const void* of_own, const void* of_float) {
    return none ? nullptr : floats ? of_float : of_own;
  };
  run_forward(is.form, {x.data(), pick(weight.data(), wide_weight.data()),
                        pick(bias.data(), wide_bias.data()), y.data(),
                        is.moments ? mean.data() : nullptr, is.moments ? rstd.data() : nullptr,
                        is.rows, is.width, is.x_stride, is.eps, own, type, type});
  const outputs want = normalize(is, doubles(xs), none ? ones : wd, none ? zeros : bd);
  // y in float is right to some units of its largest terms, and then it is rounded once.
  check_all("y", y.get(), want.y, unit<T>(), 64 * unit<float>());
  if (!is.moments) return;
  check_all("mean", mean.get(), want.mean, 2 * unit<float>(), 8 * unit<float>() * is.deviation);
  check_all("rstd", rstd.get(), want.rstd, 64 * unit<float>(), 0);
}

using enum forward_form;

}  // namespace

TEST(a_row_of_a_warp) { check<bf16>({rows_of_warps, 37, 200, 208, parameters::own}); }
TEST(whole_rows) { check<bf16>({rows_of_warps, 8, 256, 256, parameters::none, false}); }
TEST(no_more_rows_than_warps) { check<bf16>({rows_of_warps, 3, 64, 64, parameters::floats}); }
TEST(a_row_of_a_block) { check<bf16>({rows_of_blocks, 11, 600, 608, parameters::floats}); }
TEST(a_block_of_one_warp) { check<bf16>({rows_of_blocks, 5, 256, 256, parameters::own, true, 3}); }
TEST(a_last_warp_of_few_columns) { check<bf16>({rows_of_blocks, 9, 520, 520, parameters::own}); }
TEST(single_elements_with_a_large_mean) {
  check<float>({single_elements, 7, 299, 301, parameters::own, true, 1e5f});
}
TEST(equal_values) {
  check<float>({single_elements, 3, 33, 33, parameters::floats, true, 5, 0, 1e-40f});
  check<float>({single_elements, 3, 33, 33, parameters::floats, true, 5, 0, 0});
}
TEST(wide_rows) { check<bf16>({wide, 3, 2152, 2160, parameters::own}); }
TEST(wide_rows_without_moments) { check<bf16>({wide, 2, 1544, 1544, parameters::none, false}); }
TEST(wide_rows_whose_last_warp_has_one_column) {
  check<float>({wide_single_elements, 2, 1281, 1281, parameters::own, true, 1e5f});
}
