// Small calls of cross_entropy's backward and sums over rows, against the formulas in double.
#include <kittens.cuh>

#include "cross_entropy.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

// Rows times factors, of which most are 1. Every fifth element is 0, and stays 0.
void check_backward(int64_t rows, int64_t width, int64_t offset, bool in_place,
                    int64_t factor_stride, double factor) {
  auto values = normal_values<bf16>(offset + rows * width, 5);
  for (size_t i = 0; i < values.size(); i += 5) values[i] = kittens::convert<bf16>(0.0f);
  std::vector<float> factors;
  for (int64_t i = 0; i < rows * 2; ++i) factors.push_back(i % 6 == 0 ? float(factor) : 1.0f);
  const buffer<bf16> from(values), apart(rows * width);
  const buffer<float> dloss(factors);
  bf16* const first = from.data() + offset;
  run_backward({first, dloss.data(), in_place ? first : apart.data(), rows, width, width,
                factor_stride, width, dtype::bfloat16});
  const auto before = doubles(values);
  std::vector<double> want;
  for (int64_t i = 0; i < rows * width; ++i) {
    const double value = before[offset + i];
    want.push_back(value == 0 ? 0 : value * factors[i / width * factor_stride]);
  }
  auto all = (in_place ? from : apart).get();
  if (in_place) all.erase(all.begin(), all.begin() + offset);
  check_all("result", all, want, unit<bf16>(), 0);
}

void check_sums(int64_t rows, bool int64_targets, bool mean) {
  std::vector<int64_t> aims;
  std::vector<int> narrow;
  double count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    aims.push_back(r % 3 == 0 ? 7 : r);
    narrow.push_back(static_cast<int>(aims.back()));
    count += aims.back() == 7 ? 0 : 1;
  }
  const buffer<int64_t> targets_of_int64(aims), counts(kCrossEntropyParts);
  const buffer<int> targets_of_int32(narrow);
  const void* targets = targets_of_int64.data();
  if (!int64_targets) targets = targets_of_int32.data();
  run_count({targets, counts.data(), rows, 7, int64_targets});
  double counted = 0;
  for (const int64_t part : counts.get()) counted += static_cast<double>(part);
  check_all("count", std::vector<float>{float(counted)}, {count}, 0, 0);

  const auto losses = normal_values<float>(rows, 9, 4);
  const buffer<float> loss(losses), total(1);
  double want = 0;
  for (const float one : losses) want += one;
  for (int64_t* known : {static_cast<int64_t*>(nullptr), counts.data()}) {
    run_total({loss.data(), mean ? targets : nullptr, total.data(), rows, 7, int64_targets, known});
    check_all("total", total.get(), {mean ? want / count : want}, 64 * unit<float>(), 0);
  }
}

}  // namespace

TEST(factors_of_rows) { check_backward(40, 1100, 0, true, 2, -0.75); }
TEST(factors_apart) { check_backward(19, 300, 0, false, 2, -0.75); }
TEST(factors_of_rows_that_are_not_aligned) { check_backward(19, 77, 3, true, 2, 2.5); }
TEST(factors_of_results_that_lie_elsewhere) { check_backward(19, 77, 3, false, 2, 2.5); }
TEST(factors_of_results_a_column_on) { check_backward(19, 77, 7, false, 2, 2.5); }
TEST(factors_side_by_side) { check_backward(40, 77, 0, true, 1, 2.5); }
TEST(a_factor_of_infinity) {
  check_backward(40, 77, 0, true, 2, INFINITY);
  check_backward(19, 300, 3, false, 2, NAN);
}
TEST(one_factor) { check_backward(40, 2100, 0, true, 0, 0.5); }
TEST(a_factor_of_1) { check_backward(40, 77, 0, true, 0, 1); }
TEST(a_factor_of_1_apart) { check_backward(40, 77, 0, false, 0, 1); }
// Neither read nor written: there is no such memory.
TEST(rows_whose_factor_is_1) {
  const buffer<float> ones(std::vector<float>(20, 1.0f));
  for (const int64_t stride : {0, 1}) {
    run_backward({nullptr, ones.data(), nullptr, 20, 300, 300, stride, 300, dtype::bfloat16});
  }
}
TEST(few_targets) { check_sums(5, true, true); }
TEST(many_targets) { check_sums(9000, false, true); }
TEST(a_sum) { check_sums(2500, true, false); }
