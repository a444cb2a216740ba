// Small calls of the norms on narrow rows, forward and backward, against the formula in double.
#include <kittens.cuh>

#include "norm_formula.h"
#include "norm_narrow.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;
using kittens::half;

namespace {

using enum narrow_form;

// x and dy are [rows / heads, heads, width]: heads lie `inner` apart, and what has all of them
// `outer`. `own`: weight and bias of the element type, not float.
struct problem {
  narrow_form form;
  int64_t rows, width, heads = 1, inner = 0, outer = 0;
  bool own = true, weight = true, round_first = false;
  float offset = 0, mean = 0;
  double p = 0;  // of dropout
  bool sums = true, dsum = true, dx = true, dresidual = true;
};

template <class T>
constexpr dtype kType = std::is_same_v<T, float>  ? dtype::float32
                        : std::is_same_v<T, half> ? dtype::float16
                                                  : dtype::bfloat16;
constexpr int64_t kSeed = 0x123456789abcdef;
constexpr int64_t kBlocks = 2;

template <class T, class R = T>
void check(problem is) {
  const auto is_one_of = [&](auto... forms) { return ((is.form == forms) || ...); };
  const bool adds = is_one_of(any_add, any_add_rms), centred = is_one_of(layer, any, any_add);
  if (is.outer == 0) is.outer = is.width;
  const int64_t count = is.rows * is.width, last = is.rows - 1;
  const int64_t room = last / is.heads * is.outer + last % is.heads * is.inner + is.width;
  const row_strides strides = row_strides::of(is.outer, is.inner, is.heads);
  const auto elements = [&](const auto& values) {
    const numbers all = doubles(values);
    numbers found;
    for (int64_t r = 0; r < is.rows; ++r) {
      const double* row = &all[r / is.heads * is.outer + r % is.heads * is.inner];
      found.insert(found.end(), row, row + is.width);
    }
    return found;
  };
  const auto xs = normal_values<T>(room, 1, is.mean), dys = normal_values<T>(room, 5);
  const auto residuals = normal_values<R>(count, 4), dsums = normal_values<R>(count, 6);
  const auto weights = normal_values<T>(is.width, 2, 1), biases = normal_values<T>(is.width, 3);
  numbers wd = doubles(weights), bd = doubles(biases);
  const buffer<T> x(xs), dy(dys), weight(weights), bias(biases), y(count), dx(count);
  const buffer<R> residual(residuals), sum(count), dsum(dsums), dresidual(count);
  const buffer<float> weight_in_float(std::vector<float>(wd.begin(), wd.end()));
  const buffer<float> bias_in_float(std::vector<float>(bd.begin(), bd.end()));
  const buffer<float> mean(is.rows), rstd(is.rows), partial(2 * kBlocks * is.width);
  const buffer<int64_t> seed(std::vector<int64_t>{kSeed});
  const dtype own = kType<T>, of_sum = kType<R>;
  const dropout_params dropout =
      is.p > 0 ? dropout_params::of(is.p, seed.data()) : dropout_params{};

  norm_forward_params p{};
  p.x = x.data(), p.y = y.data(), p.x_rows = strides;
  p.weight_type = p.bias_type = is.own ? own : dtype::float32;
  if (is.weight)
    p.weight = is.own ? static_cast<const void*>(weight.data()) : weight_in_float.data();
  if (centred && is.weight) {
    p.bias = is.own ? static_cast<const void*>(bias.data()) : bias_in_float.data();
    p.mean = mean.data();
  }
  if (adds) p.residual = residual.data(), p.sum = sum.data();
  p.rstd = rstd.data();
  p.rows = is.rows, p.width = is.width, p.residual_stride = is.width;
  p.eps = 1e-5f, p.weight_offset = is.offset, p.round_first = is.round_first, p.dropout = dropout;
  p.type = own, p.residual_type = of_sum;
  p.op = is.form == any_add_rms ? norm_op::add_rms_norm
         : adds                 ? norm_op::add_layer_norm
         : centred              ? norm_op::layer_norm
                                : norm_op::rms_norm;
  run_narrow(is.form, p);

  numbers s = elements(xs);
  const numbers factor = dropout_factors(count, kSeed, is.p);
  if (adds) {
    const numbers more = doubles(residuals);
    for (size_t i = 0; i < s.size(); ++i) s[i] = s[i] * factor[i] + more[i];
    check_all("sum", sum.get(), s, unit<R>(), 4 * unit<float>());
  }
  for (double& w : wd) w = is.weight ? w + is.offset : 1;
  for (double& b : bd) b = centred && is.weight ? b : 0;
  const norm_outputs of = normalize(s, is.width, centred, 1e-5, wd, bd);
  check_all("y", y.get(), of.y, (is.round_first ? 2 : 1) * unit<T>(), 64 * unit<float>());
  if (is.round_first) {
    const numbers ones(is.width, 1), zeros(is.width, 0);
    check_rounded_twice(y.get(), normalize(s, is.width, centred, 1e-5, ones, zeros).y, wd);
  }
  if (p.mean != nullptr)
    check_all("mean", mean.get(), of.mean, 4 * unit<float>(), 8 * unit<float>());
  check_all("rstd", rstd.get(), of.rstd, 64 * unit<float>(), 0);

  // The backward reads what the forward has written, of which float is exact enough to
  // differentiate.
  const buffer<R> saved(adds ? normal_values<R>(count, 7) : std::vector<R>());
  const numbers t = adds ? doubles(normal_values<R>(count, 7)) : s;
  const norm_outputs moments = normalize(t, is.width, centred, 1e-5, wd, bd);
  const buffer<float> means(std::vector<float>(moments.mean.begin(), moments.mean.end()));
  const buffer<float> rstds(std::vector<float>(moments.rstd.begin(), moments.rstd.end()));
  norm_gradients want = differentiate(elements(dys), t, is.width, centred, moments, wd);
  if (adds && is.dsum) {
    const numbers more = doubles(dsums);
    for (size_t i = 0; i < more.size(); ++i) want.ds[i] += more[i];
  }
  numbers want_dx = want.ds;
  for (size_t i = 0; adds && i < want_dx.size(); ++i) want_dx[i] *= factor[i];
  norm_backward_params b{};
  b.dy = dy.data(), b.dy_rows = strides;
  b.x = adds ? static_cast<const void*>(saved.data()) : x.data();
  b.x_rows = adds ? row_strides{is.width} : strides;
  b.weight = p.weight, b.weight_type = p.weight_type, b.bias_type = p.bias_type;
  if (centred) b.mean = means.data();
  b.rstd = rstds.data();
  if (is.dx) b.dx = dx.data();
  if (adds && is.dresidual) b.dresidual = dresidual.data();
  if (adds && is.dsum) b.dsum = dsum.data();
  if (is.sums) b.partial = partial.data();
  b.partial_rows = kBlocks, b.rows = is.rows, b.width = is.width, b.dsum_stride = is.width;
  b.weight_offset = is.offset, b.dropout = dropout, b.type = own, b.residual_type = of_sum;
  run_narrow(is.form, b);
  if (is.dx) check_all("dx", dx.get(), want_dx, unit<T>(), 64 * unit<float>());
  if (adds && is.dresidual) {
    check_all("dresidual", dresidual.get(), want.ds, unit<R>(), 64 * unit<float>());
  }
  if (!is.sums) return;
  const double slack = 16 * is.rows * unit<float>();
  for (int which = 0; which < (centred ? 2 : 1); ++which) {
    std::vector<float> total(is.width);
    for (int64_t row = 0; row < kBlocks; ++row) {
      for (int64_t c = 0; c < is.width; ++c) {
        total[c] += partial.get()[(which * kBlocks + row) * is.width + c];
      }
    }
    check_all(which ? "dbias" : "dweight", total, which ? want.dbias : want.dweight,
              8 * unit<float>(), slack);
  }
}

}  // namespace

// The forward has 16 elements a lane (8 where they are single), the backward 8.
TEST(rows_of_eight_lanes) { check<bf16>({layer, 301, 64}); }
TEST(rows_of_a_warp) { check<bf16>({layer, 77, 232, 1, 0, 240, false}); }
TEST(rows_of_one_lane) { check<bf16>({layer, 1501, 8, 1, 0, 0, true, false}); }
TEST(whole_rows_of_one_lane) { check<bf16>({layer, 257, 16, 1, 0, 24, false}); }
TEST(rows_whose_second_runs_are_few) {
  for (const int64_t width : {24, 40, 72, 136}) check<bf16>({rms, 131, width});
}
TEST(rows_whose_fourth_runs_are_empty) { check<float>({rms_floats, 140, 20, 1, 0, 28}); }
TEST(rows_without_parameters) {
  check<float>({rms_floats, 9, 64, 1, 0, 0, true, false});
  check<bf16>({rms, 9, 200, 1, 0, 0, true, false, true});
}
TEST(heads) { check<bf16>({rms, 7 * 30, 64, 7, 72, 1000, true, true, true, 1, 2}); }
TEST(heads_of_a_power_of_two) { check<bf16>({rms, 8 * 20, 128, 8, 128, 3072, false}); }
TEST(single_elements) { check<float>({any, 70, 101, 2, 101, 301, true, true, false, 0, 3}); }
TEST(single_elements_over_a_large_mean) {
  check<float>({any, 40, 61, 1, 0, 0, true, true, false, 0, 1000});
}
TEST(rms_rows_of_any_element) {
  check<half>({any_rms, 70, 101, 1, 0, 0, true, true, true, 1, 2});
  check<half>({any_rms, 70, 101, 1, 0, 0, false, true});
}
TEST(few_single_elements) { check<float>({any, 600, 5}); }
TEST(sums) { check<bf16>({any_add, 150, 120, 1, 0, 0, true, true, false, 0, 0, 0.3}); }
TEST(sums_alone) {
  problem is{any_add, 33, 64};
  is.sums = is.dsum = is.dx = false;
  check<bf16>(is);
}
TEST(sums_for_x_alone) {
  problem is{any_add, 33, 64};
  is.dresidual = false;
  check<bf16>(is);
}
TEST(sums_in_float) {
  check<bf16, float>({any_add_rms, 150, 136, 1, 0, 0, true, true, false, 1, 0, 0.5});
}
