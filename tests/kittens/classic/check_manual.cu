// The kernels of docs/tiles.md: softmax_rows, small_product, product.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

// Numbers of which bf16 holds every sum of products that a test adds up.
std::vector<bf16> small_integers(int n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<bf16> values;
  for (int i = 0; i < n; ++i) values.push_back(convert<bf16>(float(generator() % 3) - 1.0f));
  return values;
}

float dot(const std::vector<bf16>& a, const std::vector<bf16>& b, int row, int col, int depth) {
  float sum = 0.0f;
  for (int k = 0; k < depth; ++k) {
    sum += convert<float>(a[row * depth + k]) * convert<float>(b[col * depth + k]);
  }
  return sum;
}

void check_product(int m, int n, int k) {
  const auto a = small_integers(m * k, 1), b = small_integers(n * k, 2);
  const buffer<bf16> a_buffer(a), b_buffer(b), c_buffer(size_t(m) * n);
  launch_product(a_buffer.data(), b_buffer.data(), c_buffer.data(), m, n, k, nullptr);
  const std::vector<bf16> c = c_buffer.get();
  for (int i = 0; i < m * n; ++i) {
    CHECK_EQUAL(convert<float>(c[i]), dot(a, b, i / n, i % n, k));
  }
}

}  // namespace

TEST(the_first_kernel) {
  constexpr int kRows = 40, kCols = 64;  // the last block has eight rows
  const auto x = random_elements<bf16>(kRows * kCols, 1);
  const buffer<bf16> x_buffer(x), y_buffer(x.size());
  run(softmax_rows, {.grid = {3}, .block = {32}},
      gl<const bf16>::matrix(x_buffer.data(), kRows, kCols, kCols),
      gl<bf16>::matrix(y_buffer.data(), kRows, kCols, kCols));
  const std::vector<bf16> y = y_buffer.get();
  for (int r = 0; r < kRows; ++r) {
    double total = 0.0;
    for (int c = 0; c < kCols; ++c) total += std::exp(double{convert<float>(x[r * kCols + c])});
    for (int c = 0; c < kCols; ++c) {
      const double want = std::exp(double{convert<float>(x[r * kCols + c])}) / total;
      // One rounding to bf16, and some of float.
      CHECK_CLOSE(convert<float>(y[r * kCols + c]), want, 1.01 * rounding<bf16>() * want);
    }
  }
}

TEST(a_block) {
  const auto a = small_integers(64 * 64, 1), b = small_integers(64 * 64, 2);
  const buffer<bf16> a_buffer(a), b_buffer(b);
  const buffer<float> c_buffer(64 * 64);
  run(small_product,
      {.grid = {1}, .block = {128}, .shared_bytes = kStaticBytes + 2 * sizeof(st_bf<64, 64>)},
      a_buffer.data(), b_buffer.data(), c_buffer.data());
  const std::vector<float> c = c_buffer.get();
  for (int i = 0; i < 64 * 64; ++i) CHECK_EQUAL(c[i], dot(a, b, i / 64, i % 64, 64));
}

TEST(producer_and_consumers) { check_product(256, 384, 320); }
TEST(producer_and_consumers_with_ragged_edges) { check_product(200, 136, 72); }
