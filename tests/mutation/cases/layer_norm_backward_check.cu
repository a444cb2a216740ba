// Small calls of layer_norm's backward against the formula in double.
#include <kittens.cuh>

#include "layer_norm_backward.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;
using kittens::half;

namespace {

struct problem {
  backward_shape shape;
  int64_t rows, width, stride, partial_rows;
  dtype weight_type, bias_type;
  bool dx = true, dweight = true, dbias = true, weight = true;
  float mean = 0;
};

struct outputs {
  std::vector<double> dx, dweight, dbias, mean, rstd;
};

// `dy` and `x` have rows of `stride`.
outputs differentiate(const problem& is, const std::vector<double>& dy,
                      const std::vector<double>& x, const std::vector<double>& w) {
  outputs want;
  want.dweight.resize(is.width), want.dbias.resize(is.width);
  const double n = static_cast<double>(is.width);
  for (int64_t r = 0; r < is.rows; ++r) {
    const double *row = &x[r * is.stride], *d = &dy[r * is.stride];
    double mean = 0, variance = 0, mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < is.width; ++c) mean += row[c] / n;
    for (int64_t c = 0; c < is.width; ++c) variance += (row[c] - mean) * (row[c] - mean) / n;
    const double rstd = 1 / std::sqrt(variance + 1e-5);
    for (int64_t c = 0; c < is.width; ++c) {
      const double x_hat = (row[c] - mean) * rstd;
      mean_g += d[c] * w[c] / n;
      mean_gx += d[c] * w[c] * x_hat / n;
      want.dweight[c] += d[c] * x_hat;
      want.dbias[c] += d[c];
    }
    for (int64_t c = 0; c < is.width; ++c) {
      const double x_hat = (row[c] - mean) * rstd;
      want.dx.push_back(rstd * (d[c] * w[c] - mean_g - x_hat * mean_gx));
    }
    want.mean.push_back(mean);
    want.rstd.push_back(rstd);
  }
  return want;
}

// A parameter's gradient as the kernel writes it, by its type.
class gradient {
 public:
  gradient(int64_t width, dtype type) : type_(type), wide_(width), half_(width), bf16_(width) {}

  void* data() const {
    if (type_ == dtype::float32) return wide_.data();
    return type_ == dtype::float16 ? static_cast<void*>(half_.data()) : bf16_.data();
  }
  void check(const char* what, const std::vector<double>& want, double absolute) const {
    if (type_ == dtype::float32) check_all(what, wide_.get(), want, 8 * unit<float>(), absolute);
    if (type_ == dtype::float16) check_all(what, half_.get(), want, unit<half>(), absolute);
    if (type_ == dtype::bfloat16) check_all(what, bf16_.get(), want, unit<bf16>(), absolute);
  }

 private:
  dtype type_;
  buffer<float> wide_;
  buffer<half> half_;
  buffer<bf16> bf16_;
};

template <class T>
void check(const problem& is) {
  const auto dys = normal_values<T>(is.rows * is.stride, 1);
  const auto xs = normal_values<T>(is.rows * is.stride, 2, is.mean);
  auto weights = normal_values<float>(is.width, 3, 1);
  std::vector<T> own_weights;
  for (float& w : weights) {  // floats that T has
    own_weights.push_back(kittens::convert<T>(w));
    w = kittens::convert<float>(own_weights.back());
  }
  const std::vector<double> ones(is.width, 1);
  const outputs want =
      differentiate(is, doubles(dys), doubles(xs), is.weight ? doubles(weights) : ones);
  const buffer<T> dy(dys), x(xs), own_weight(own_weights), dx(is.rows * is.width);
  const buffer<float> wide_weight(weights);
  const buffer<float> mean(std::vector<float>(want.mean.begin(), want.mean.end()));
  const buffer<float> rstd(std::vector<float>(want.rstd.begin(), want.rstd.end()));
  const buffer<float> partial(2 * is.partial_rows * is.width);
  const gradient dweight(is.width, is.weight_type), dbias(is.width, is.bias_type);
  const bool wide = is.weight_type == dtype::float32;
  const void* weight = wide ? static_cast<const void*>(wide_weight.data()) : own_weight.data();
  const bool sums = is.dweight || is.dbias;
  run_backward(
      is.shape,
      {dy.data(), x.data(), is.weight ? weight : nullptr, mean.data(), rstd.data(),
       is.dx ? dx.data() : nullptr, is.dweight ? dweight.data() : nullptr,
       is.dbias ? dbias.data() : nullptr, sums ? partial.data() : nullptr, is.partial_rows, is.rows,
       is.width, is.stride, is.stride, std::is_same_v<T, float> ? dtype::float32 : dtype::bfloat16,
       is.weight_type, is.bias_type});
  // Sums in float of `rows` or `width` terms about 1, most of which are below 4.
  if (is.dx) check_all("dx", dx.get(), want.dx, unit<T>(), 64 * unit<float>());
  const double slack = 16 * is.rows * unit<float>();
  // Over a large mean, x̂ of the sums is off by what the saved mean lacks.
  const bool in_groups = is.shape.form == backward_form::groups ||
                         is.shape.form == backward_form::groups_of_single_elements;
  const double lost = in_groups ? 0 : is.rows * is.mean * unit<float>();
  if (is.dweight) dweight.check("dweight", want.dweight, slack + 4 * lost);
  if (is.dbias) dbias.check("dbias", want.dbias, slack);
}

using enum backward_form;
constexpr dtype kFloat = dtype::float32, kHalf = dtype::float16, kBf16 = dtype::bfloat16;

}  // namespace

TEST(several_groups) { check<bf16>({{groups, 2, 4}, 23, 704, 712, 2, kBf16, kFloat}); }
TEST(one_group) { check<bf16>({{groups, 3, 1}, 7, 1536, 1536, 3, kFloat, kBf16}); }
TEST(fewer_rows_than_groups) { check<bf16>({{groups, 1, 4}, 6, 120, 120, 2, kFloat, kFloat}); }
TEST(single_elements_with_a_large_mean) {
  check<float>({{groups_of_single_elements, 2, 2},
                11,
                517,
                519,
                2,
                kFloat,
                kHalf,
                true,
                true,
                true,
                true,
                3e4f});
}
TEST(only_dx) {
  check<bf16>({{groups, 1, 2}, 5, 264, 264, 2, kBf16, kBf16, true, false, false, false});
}
TEST(only_dbias) { check<bf16>({{groups, 1, 2}, 5, 96, 96, 2, kBf16, kFloat, false, false}); }
TEST(only_dweight) {
  check<bf16>({{groups, 2, 2}, 6, 640, 640, 1, kBf16, kFloat, false, true, false});
}
TEST(wide_rows) { check<bf16>({{wide, 2, 1}, 23, 1640, 1648, 20, kBf16, kFloat}); }
TEST(wide_rows_of_whole_warps) { check<bf16>({{wide, 2, 1}, 18, 1536, 1536, 17, kFloat, kHalf}); }
TEST(wide_rows_whose_last_warp_has_one_column) {
  check<float>({{wide_single_elements, 2, 1},
                3,
                1025,
                1025,
                2,
                kFloat,
                kFloat,
                true,
                true,
                true,
                true,
                3e4f});
}
