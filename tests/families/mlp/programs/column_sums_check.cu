// Sums of columns against those in double.
#include <kittens.cuh>

#include "column_sums.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

template <class T>
void check(int rows, int width, bool accumulate) {
  constexpr int kRun = 16 / int(sizeof(T));
  const int stride = width + kRun;
  const auto xs = normal_values<T>(rows * stride, 1), before = normal_values<T>(width, 2);
  const buffer<T> x(xs), sums(before);
  const int parts = (rows + int(rows_of_part(rows)) - 1) / int(rows_of_part(rows));
  const buffer<float> partial(parts * width);
  const dtype type = std::is_same_v<T, float> ? dtype::float32 : dtype::bfloat16;
  run({.problem = {.rows = rows, .width = width, .stride = stride, .type = type},
       .tensors = {.x = x.data(), .sums = sums.data(), .accumulate = accumulate},
       .partial = partial.data()});
  const auto in = doubles(xs), first = doubles(before);
  std::vector<double> want;
  for (int n = 0; n < width; ++n) {
    double sum = accumulate ? first[n] : 0;
    for (int m = 0; m < rows; ++m) sum += in[m * stride + n];
    want.push_back(sum);
  }
  check_all("sums", sums.get(), want, 1.1 * unit<T>(), 1e-3);
}

}  // namespace

// More parts than one, and rows that a warp has in flight, and behind them; more slices than one.
TEST(of_16_bits) { check<bf16>(700, 264, false); }
TEST(added) { check<bf16>(700, 264, true); }
TEST(of_float) { check<float>(330, 136, false); }
TEST(fewer_rows_than_warps) { check<bf16>(5, 8, false); }
TEST(as_many_parts_as_warps_add_in_turn) { check<bf16>(34 * 256 + 3, 40, true); }
