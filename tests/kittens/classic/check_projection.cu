// The kernel of projection.cu against float64.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

void check_projection(int rows, int valid) {
  std::vector<half> a = random_elements<half>(rows * kDepth, 1);
  for (half& x : a) x = convert<half>(convert<float>(x) / 4.0f);  // scores of some units
  const auto b = random_elements<half>(kDepth * kWidth, 2);
  const buffer<half> a_buffer(a), b_buffer(b);
  const buffer<float> p_buffer(size_t(rows) * kWidth), s_buffer(rows);
  projection(a_buffer.data(), b_buffer.data(), p_buffer.data(), s_buffer.data(), rows, valid);
  const std::vector<float> p = p_buffer.get(), s = s_buffer.get();
  for (int r = 0; r < rows; ++r) {
    std::vector<double> weights(kWidth);
    double total = 0.0, squares = 0.0;
    for (int c = 0; c < valid; ++c) {
      double score = 0.0;
      for (int k = 0; k < kDepth; ++k) {
        score += double{convert<float>(a[r * kDepth + k])} * convert<float>(b[k * kWidth + c]);
      }
      weights[c] = std::exp(score);
      total += weights[c];
    }
    // A score is a sum of 128 products below 2, added in float: off by at most 128 · 256 · 2⁻²⁴,
    // and a weight's relative error is twice that (its own score, and the others' in the total).
    const double tolerance = 2.0 * 128 * 256 * 0x1p-24;
    for (int c = 0; c < kWidth; ++c) {
      const double want = weights[c] / total;
      CHECK_CLOSE(p[r * kWidth + c], want, tolerance * want);
      squares += want * want;
    }
    CHECK_CLOSE(s[r], squares, 3.0 * tolerance * squares);
  }
}

}  // namespace

TEST(whole_tiles) { check_projection(128, kWidth); }
TEST(columns_that_do_not_count) { check_projection(64, 37); }
TEST(rows_that_do_not_exist) { check_projection(77, 5); }
