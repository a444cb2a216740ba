// Small calls of cross_entropy against the formulas in double.
#include <kittens.cuh>
#include <limits>

#include "cross_entropy.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int64_t kIgnored = -100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct problem {
  forward_form form;
  int64_t rows, width, stride;
  int64_t offset = 0;           // of the first logit, in elements
  int64_t gradient_offset = 0;  // likewise
  bool in_place = false, gradient = true, wide = true, counted = true, scaled = false;
  double smoothing = 0, z = 0;
  bool loss = true;
  int64_t shift = 0;  // of the rows whose targets are not columns, or ignored
};

// Of row r: every fourth is ignored, and one of each kind of what is no column stands among the
// rest; the first and the last column are aimed at.
int64_t target_of(const problem& is, int64_t r) {
  switch ((r + is.shift) % 8) {
    case 1: return is.width - 1;
    case 2: return 0;
    case 3: return kIgnored;
    case 4: return -1;
    case 5: return is.width;
    case 7: return kIgnored;
    default: return (r * 37 + 11) % is.width;
  }
}

struct outputs {
  std::vector<double> loss, gradient;
};

outputs compute(const problem& is, const std::vector<double>& x, const std::vector<int64_t>& aims,
                double count, const std::vector<double>& dloss) {
  outputs want;
  const double smooth = is.smoothing / static_cast<double>(is.width);
  for (int64_t r = 0; r < is.rows; ++r) {
    const double* row = &x[is.offset + r * is.stride];
    const int64_t t = aims[r];
    if (t == kIgnored) {
      want.loss.push_back(0);
      want.gradient.insert(want.gradient.end(), is.width, 0);
      continue;
    }
    double top = -kInfinity, total = 0, plain = 0;
    for (int64_t c = 0; c < is.width; ++c) top = std::max(top, row[c]);
    for (int64_t c = 0; c < is.width; ++c) total += std::exp(row[c] - top), plain += row[c];
    const bool outside = t < 0 || t >= is.width;
    const double lse = outside ? kNan : top + std::log(total);
    double loss = lse - (1 - is.smoothing) * (outside ? 0 : row[t]) + is.z * lse * lse;
    if (is.smoothing > 0) loss -= smooth * plain;
    want.loss.push_back(loss);
    for (int64_t c = 0; c < is.width; ++c) {
      const double hit = c == t ? 1 - is.smoothing : 0;
      const double g = std::exp(row[c] - lse) * (1 + 2 * is.z * lse) - hit - smooth;
      want.gradient.push_back(g * (is.scaled ? dloss[2 * r] : 1) / (is.counted ? count : 1));
    }
  }
  return want;
}

template <class T>
void check(const problem& is) {
  auto xs = normal_values<T>(is.offset + is.rows * is.stride, 1, 0, 2);
  // A column of −inf.
  for (int64_t r = 0; r < is.rows && is.smoothing == 0; ++r) {
    xs[is.offset + r * is.stride + is.width / 3] = kittens::convert<T>(-INFINITY);
  }
  std::vector<int64_t> aims;
  std::vector<int> narrow;
  for (int64_t r = 0; r < is.rows; ++r) {
    aims.push_back(target_of(is, r));
    narrow.push_back(static_cast<int>(aims.back()));
  }
  std::vector<int64_t> parts(kCrossEntropyParts);
  for (int i = 0; i < kCrossEntropyParts; ++i) parts[i] = i % 3;
  const auto dlosses = normal_values<float>(2 * is.rows, 3);
  const buffer<T> x(xs), apart(is.gradient_offset + is.rows * is.stride);
  const buffer<int64_t> wide_targets(aims), counts(parts);
  const buffer<int> narrow_targets(narrow);
  const buffer<float> loss(is.rows), dloss(dlosses);
  T* gradient = is.in_place ? x.data() + is.offset : apart.data() + is.gradient_offset;
  const void* targets = wide_targets.data();
  run_forward(is.form, {x.data() + is.offset, is.wide ? targets : narrow_targets.data(),
                        is.gradient ? gradient : nullptr, is.loss ? loss.data() : nullptr,
                        is.counted ? counts.data() : nullptr, is.scaled ? dloss.data() : nullptr,
                        is.rows, is.width, is.stride, is.stride, 2, kIgnored,
                        static_cast<float>(is.smoothing), static_cast<float>(is.z), is.wide,
                        std::is_same_v<T, float> ? dtype::float32 : dtype::bfloat16});
  const double count = 31;  // of the parts
  const outputs want = compute(is, doubles(xs), aims, count, doubles(dlosses));
  const double slack = 64 * unit<float>();
  if (is.loss) check_all("loss", loss.get(), want.loss, slack, slack * (1 + 10 * is.z));
  const auto all = doubles((is.in_place ? x : apart).get());
  if (!is.gradient) return check_all("logits", x.get(), doubles(xs), 0, 0);
  const int64_t first = is.in_place ? is.offset : is.gradient_offset;
  std::vector<float> got;
  for (int64_t r = 0; r < is.rows; ++r) {
    const double* row = &all[first + r * is.stride];
    got.insert(got.end(), row, row + is.width);
  }
  check_all("gradient", got, want.gradient, unit<T>() + slack, slack * (1 + is.z) * 4);
}

// Rows times factors, of which most are 1.
void check_backward(int64_t rows, int64_t width, int64_t slices, int64_t offset, bool in_place,
                    int64_t factor_stride, double factor) {
  const auto values = normal_values<bf16>(offset + rows * width, 5);
  std::vector<float> factors;
  for (int64_t i = 0; i < rows * 2; ++i) factors.push_back(i % 6 == 0 ? float(factor) : 1.0f);
  const buffer<bf16> from(values), apart(rows * width);
  const buffer<float> dloss(factors);
  bf16* const first = from.data() + offset;
  run_backward(slices, {first, dloss.data(), in_place ? first : apart.data(), rows, width, width,
                        factor_stride, width, dtype::bfloat16});
  const auto before = doubles(values);
  std::vector<double> want;
  for (int64_t i = 0; i < rows * width; ++i) {
    want.push_back(before[offset + i] * factors[i / width * factor_stride]);
  }
  auto all = (in_place ? from : apart).get();
  if (in_place) all.erase(all.begin(), all.begin() + offset);
  check_all("result", all, want, unit<bf16>(), 0);
}

void check_sums(int64_t rows, bool wide, bool mean) {
  std::vector<int64_t> aims;
  std::vector<int> narrow;
  double count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    aims.push_back(r % 3 == 0 ? 7 : r);
    narrow.push_back(static_cast<int>(aims.back()));
    count += aims.back() == 7 ? 0 : 1;
  }
  const buffer<int64_t> wide_targets(aims), counts(kCrossEntropyParts);
  const buffer<int> narrow_targets(narrow);
  const void* targets = wide_targets.data();
  if (!wide) targets = narrow_targets.data();
  run_count({targets, counts.data(), rows, 7, wide});
  double counted = 0;
  for (const int64_t part : counts.get()) counted += static_cast<double>(part);
  check_all("count", std::vector<float>{float(counted)}, {count}, 0, 0);

  const auto losses = normal_values<float>(rows, 9, 4);
  const buffer<float> loss(losses), total(1);
  double want = 0;
  for (const float one : losses) want += one;
  for (int64_t* known : {static_cast<int64_t*>(nullptr), counts.data()}) {
    run_total({loss.data(), mean ? targets : nullptr, total.data(), rows, 7, wide, known});
    check_all("total", total.get(), {mean ? want / count : want}, 64 * unit<float>(), 0);
  }
}

using enum forward_form;

}  // namespace

TEST(a_row_of_a_warp) { check<bf16>({rows_of_a_warp, 13, 200, 208}); }
TEST(whole_vectors) { check<bf16>({rows_of_a_warp, 8, 1024, 1024, 0, 0, true, true, false}); }
TEST(rows_that_are_not_aligned) { check<bf16>({rows_of_a_warp, 9, 77, 77, 3, 3}); }
TEST(rows_between_two_vectors) { check<bf16>({rows_of_a_warp, 8, 6, 7, 1, 1}); }
TEST(gradients_that_lie_elsewhere) { check<bf16>({rows_of_a_warp, 9, 77, 77, 3, 0}); }
TEST(rows_of_two_warps) { check<bf16>({rows, 10, 2101, 2101, 0, 0, true, true, true, false}); }
TEST(rows_of_three_warps) {
  check<bf16>({rows, 9, 4100, 4104, 5, 5, true, true, true, true, true, 0.1, 0.01});
}
TEST(no_gradient) { check<bf16>({rows_of_a_warp, 9, 300, 300, 0, 0, false, false}); }
TEST(no_loss) {
  check<bf16>({rows_of_a_warp, 9, 300, 300, 0, 0, false, true, true, true, true, 0.1, 0, false});
}
TEST(a_first_row_that_aims_at_nothing) {
  check<bf16>({rows_of_a_warp, 5, 40, 40, 0, 0, false, true, true, true, false, 0, 0, true, 4});
}
TEST(chunks_that_all_stay) { check<bf16>({stream, 11, 1100, 1104}); }
TEST(chunks_that_come_again) { check<bf16>({stream, 11, 4100, 4104, 0, 0, true}); }
TEST(chunks_that_end_with_a_row) { check<bf16>({stream, 6, 3072, 3072, 0, 0, true}); }
TEST(chunks_of_rows_that_are_not_aligned) {
  check<bf16>({stream, 11, 3333, 3333, 3, 3, true, true, false, true, true, 0.1, 0.01});
}
TEST(chunks_of_gradients_that_lie_elsewhere) { check<bf16>({stream, 9, 2061, 2061, 5, 0}); }
TEST(chunks_of_floats) {
  check<float>(
      {stream_of_floats, 9, 2051, 2051, 0, 0, true, true, true, false, true, 0, 0, true, 4});
}
TEST(chunks_without_a_gradient) {
  check<float>({stream_of_floats, 11, 2600, 2600, 1, 1, false, false, true, true, false, 0.2});
}
TEST(losses_alone) {
  check<float>({loss_of_floats, 11, 1300, 1300, 1, 1, false, false, true, false, false, 0.2, 0.01});
}
TEST(losses_of_whole_vectors) {
  check<float>(
      {loss_of_floats, 9, 1024, 1024, 0, 0, false, false, false, false, false, 0, 0, true, 4});
}
TEST(chunks_without_a_loss) {
  check<bf16>({stream, 9, 1100, 1100, 0, 0, false, true, true, true, true, 0, 0, false});
}
TEST(factors_of_rows) { check_backward(40, 1100, 2, 0, true, 2, -0.75); }
TEST(factors_apart) { check_backward(19, 300, 1, 0, false, 2, -0.75); }
TEST(factors_of_rows_that_are_not_aligned) { check_backward(19, 77, 1, 3, true, 2, 2.5); }
TEST(factors_of_results_that_lie_elsewhere) { check_backward(19, 77, 1, 3, false, 2, 2.5); }
TEST(one_factor) { check_backward(40, 2100, 3, 0, true, 0, 0.5); }
TEST(a_factor_of_1) { check_backward(40, 77, 1, 0, true, 0, 1); }
TEST(a_factor_of_1_apart) { check_backward(40, 77, 1, 0, false, 0, 1); }
TEST(few_targets) { check_sums(5, true, true); }
TEST(many_targets) { check_sums(9000, false, true); }
TEST(a_sum) { check_sums(2500, true, false); }
