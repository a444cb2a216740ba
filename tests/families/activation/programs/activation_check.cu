// Small calls of the element-wise kernels against the formulas in double.
#include <kittens.cuh>

#include "activation.h"
#include "problem.h"

using namespace kittens::testing;
using kittens::bf16;

namespace {

struct problem {
  activation_form form;
  int64_t rows, width, stride;
  bool dgate = true, dup = true;
  int64_t offset = 0;  // where x starts, in elements; up starts at three times as many
};

struct value_and_slope {
  double value, slope;
};

value_and_slope activate(activation_form form, double x) {
  const double pi = std::acos(-1.0);
  if (form == activation_form::erf_in_runs || form == activation_form::erf_unaligned) {
    const double normal = std::erfc(-x / std::sqrt(2.0)) / 2;
    return {x * normal, normal + x * std::exp(-x * x / 2) / std::sqrt(2 * pi)};
  }
  const bool silu = form != activation_form::tanh_in_runs;
  const double root = 2 * std::sqrt(2 / pi);
  const double z = silu ? x : root * (x + 0.044715 * x * x * x);
  const double dz = silu ? 1 : root * (1 + 3 * 0.044715 * x * x);
  const double s = 1 / (1 + std::exp(-z)), rest = 1 / (1 + std::exp(z));
  return {x * s, s + x * s * rest * dz};
}

// Values behind `offset` elements, none of which a kernel may read.
template <class T>
class values_behind {
 public:
  values_behind(int64_t offset, std::vector<T> values)
      : offset_(offset), all_(with(offset, values)) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    if (offset > 0) kittens::sim::guard(data(), {bytes, offset * int64_t(sizeof(T))});
  }
  ~values_behind() {
    if (offset_ > 0) kittens::sim::release_guards(data());
  }
  const T* data() const { return all_.data() + offset_; }

 private:
  static std::vector<T> with(int64_t offset, std::vector<T> values) {
    values.insert(values.begin(), offset, kittens::convert<T>(std::nanf("")));
    return values;
  }
  int64_t offset_;
  buffer<T> all_;
};

template <class T>
void check(const problem& is) {
  const bool gated =
      is.form != activation_form::erf_in_runs && is.form != activation_form::erf_unaligned;
  // Behind the last row, there is nothing that may be read.
  const int64_t read = (is.rows - 1) * is.stride + is.width, written = is.rows * is.width;
  auto xs = normal_values<T>(read, 1, 0, 3);
  xs[0] = kittens::convert<T>(-60.0f);  // whose square and cube are large
  const auto ups = normal_values<T>(read, 2), dys = normal_values<T>(read, 3);
  const values_behind<T> x(is.offset, xs), up(3 * is.offset, ups);
  const buffer<T> dy(dys);
  const buffer<T> y(written), dgate(written), dup(written);
  run_activation(is.form, {dy.data(), x.data(), gated ? up.data() : nullptr, y.data(),
                           is.dgate ? dgate.data() : nullptr,
                           gated && is.dup ? dup.data() : nullptr, is.rows, is.width, is.stride});
  const auto xd = doubles(xs), upd = doubles(ups), dyd = doubles(dys);
  std::vector<double> want_y, want_dgate, want_dup;
  for (int64_t r = 0; r < is.rows; ++r) {
    for (int64_t i = r * is.stride; i < r * is.stride + is.width; ++i) {
      const value_and_slope f = activate(is.form, xd[i]);
      const double factor = gated ? upd[i] : 1;
      want_y.push_back(f.value * factor);
      want_dgate.push_back(dyd[i] * factor * f.slope);
      want_dup.push_back(dyd[i] * f.value);
    }
  }
  // A slope near its zero has the error of terms about 1; floats' tails that of their exponents.
  const double relative = (std::is_same_v<T, float> ? 256 : 1.1) * unit<T>();
  const double absolute = 64 * (std::is_same_v<T, float> ? unit<T>() : 0x1p-20);
  check_all("y", y.get(), want_y, relative, 1e-30);
  if (is.dgate) check_all("dgate", dgate.get(), want_dgate, relative, absolute);
  if (gated && is.dup) check_all("dup", dup.get(), want_dup, relative, 1e-30);
}

using enum activation_form;

}  // namespace

TEST(one_long_row) { check<bf16>({silu_in_runs, 1, 5000, 5000}); }
TEST(rows_apart) { check<bf16>({silu_in_runs, 5, 1032, 1040}); }
TEST(narrow_rows) { check<bf16>({silu_in_runs, 7, 16, 24}); }
TEST(only_dgate) { check<bf16>({silu_in_runs, 2, 64, 64, true, false}); }
TEST(only_dup) { check<bf16>({silu_in_runs, 2, 64, 64, false, true}); }
TEST(floats) { check<float>({tanh_in_runs, 3, 644, 648}); }
TEST(plain) { check<bf16>({erf_in_runs, 3, 2056, 2064}); }
TEST(rows_that_start_anywhere) { check<bf16>({silu_unaligned, 9, 1061, 1063, true, true, 1}); }
TEST(floats_that_start_anywhere) { check<float>({erf_unaligned, 5, 531, 534, true, true, 1}); }
TEST(few_elements) {
  for (const int64_t width : {1, 13, 14, 15, 16, 20, 21, 31, 40}) {
    check<bf16>({silu_unaligned, 9, width, width + 1, true, true, 5});
  }
}
TEST(groups_of_rows) { check<bf16>({silu_unaligned, 133, 45, 47, true, true, 3}); }
TEST(groups_of_floats) { check<float>({erf_unaligned, 66, 1, 2, true, true, 1}); }
TEST(only_dgate_anywhere) { check<bf16>({silu_unaligned, 3, 77, 79, true, false, 1}); }
TEST(only_dup_anywhere) { check<bf16>({silu_unaligned, 3, 77, 79, false, true, 1}); }
