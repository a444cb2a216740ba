// The product of demos/custom_kernel: of small integers, which is exact but for the last rounding.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

void check_product(int m, int n, int k) {
  std::mt19937 generator(1);
  const auto integers = [&](int count) {
    std::vector<bf16> values;
    for (int i = 0; i < count; ++i) values.push_back(convert<bf16>(float(generator() % 7) - 3.0f));
    return values;
  };
  const std::vector<bf16> a = integers(m * k), b = integers(n * k);
  const buffer<bf16> a_buffer(a), b_buffer(b), c_buffer(size_t(m) * n);
  gemm(a_buffer.data(), b_buffer.data(), c_buffer.data(), m, n, k, nullptr);
  const std::vector<bf16> c = c_buffer.get();
  for (int i = 0; i < m * n; ++i) {
    float sum = 0.0f;
    for (int j = 0; j < k; ++j) {
      sum += convert<float>(a[i / n * k + j]) * convert<float>(b[i % n * k + j]);
    }
    CHECK_EQUAL(convert<float>(c[i]), convert<float>(convert<bf16>(sum)));
  }
}

}  // namespace

TEST(one_tile) { check_product(256, 256, 64); }
TEST(the_ring_goes_round) { check_product(256, 256, 640); }
TEST(ragged_edges) { check_product(300, 520, 72); }
TEST(more_tiles_than_clusters) { check_product(1024, 1024, 136); }
TEST(more_columns_than_go_together) { check_product(264, 2312, 64); }
