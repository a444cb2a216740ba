// The kernel of h100_gemm.cu: products of small integers, exact but for the last rounding.
#include <kittens/classic.cuh>

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
  const std::vector<bf16> a = integers(m * k), b = integers(k * n);
  const buffer<bf16> a_buffer(a), b_buffer(b), c_buffer(size_t(m) * n);
  CUtensorMap* tma_a = tma::allocate_and_create_tensor_map<gemm_a>(
      a_buffer.data(), m / gemm_a::rows, k / gemm_a::cols);
  CUtensorMap* tma_b = tma::allocate_and_create_tensor_map<gemm_b>(
      b_buffer.data(), k / gemm_b::rows, n / gemm_b::cols);
  CUtensorMap* tma_c = tma::allocate_and_create_tensor_map<gemm_c>(
      c_buffer.data(), m / gemm_c::rows, n / gemm_c::cols);
  launch_gemm(tma_a, tma_b, tma_c, m, n, k, nullptr);
  const std::vector<bf16> c = c_buffer.get();
  for (CUtensorMap* map : {tma_a, tma_b, tma_c}) cudaFree(map);
  std::vector<float> sums(n);
  for (int i = 0; i < m; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int j = 0; j < k; ++j) {
      const float left = convert<float>(a[size_t(i) * k + j]);
      for (int l = 0; l < n; ++l) sums[l] += left * convert<float>(b[size_t(j) * n + l]);
    }
    for (int l = 0; l < n; ++l) {
      CHECK_EQUAL(convert<float>(c[size_t(i) * n + l]), convert<float>(convert<bf16>(sums[l])));
    }
  }
}

}  // namespace

TEST(one_step) { check_product(128, 256, 64); }
TEST(the_stages_go_round) { check_product(128, 256, 640); }
TEST(every_block_has_its_own_tile) { check_product(1280, 512, 128); }
