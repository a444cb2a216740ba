// ops/warpgroup_mma.cuh: products that also give the sums of their left side's rows.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::check_tile;
using testing::gather;
using testing::round_to;
using testing::run;
using testing::scatter;
using testing::spoil_padding;

namespace {

constexpr int kWarps = 4;

template <class T, int K, int N, int Products, class Layout>
struct operands {
  st_ones<T, K, N, Layout> b[Products];
};

// d = c, then d += a[i]·b[i] with row sums, for all i at a time; `plain` the same by mma_AB. Where
// the ones are in padding, the rest of it is NaNs.
template <class T, int K, int N, int Products, class Layout>
__global__ void __launch_bounds__(128) products(const float* a, const float* b, const float* c,
                                                float* with_sums, float* plain, float* sums) {
  auto& s = *reinterpret_cast<operands<T, K, N, Products, Layout>*>(arch::dynamic_shared());
  if (arch::warp_id() == 0) {
    for (int i = 0; i < Products; ++i) {
      gather(s.b[i].tile, b + i * K * N);
      spoil_padding(s.b[i].tile);
    }
    arch::fence_async_proxy();
  }
  arch::sync_block();
  for (int i = 0; i < Products; ++i) warpgroup::set_ones(s.b[i]);
  arch::sync_block();
  const int warp = arch::warp_id();
  rt<T, 16, K> rows[Products];
  for (int i = 0; i < Products; ++i) gather(rows[i], a + (i * kWarps + warp) * 16 * K);
  {
    rt_fl<16, N + 16> d;
    gather(d, c + warp * 16 * (N + 16));
    warpgroup::mma_fence(d);
    for (int i = 0; i < Products; ++i) warpgroup::mma_AB_row_sums(d, rows[i], s.b[i]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(d);
    scatter(with_sums + warp * 16 * (N + 16), d);
    typename rt_fl<16, N + 16>::col_vec vec;
    row_sums_of(vec, d);
    scatter(sums + warp * 16, vec);
  }
  rt_fl<16, N> d;
  gather(d, c + warp * 16 * (N + 16), N + 16);
  warpgroup::mma_fence(d);
  for (int i = 0; i < Products; ++i) warpgroup::mma_AB(d, rows[i], s.b[i].tile);
  warpgroup::mma_commit_group();
  warpgroup::mma_async_wait<0>(d);
  scatter(plain + warp * 16 * N, d);
}

// Whole numbers from −most to most: their products are exact in floats, in whatever order.
std::vector<float> whole_numbers(int n, int most, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (int i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(static_cast<int>(generator() % (2 * most + 1)) - most));
  }
  return values;
}

template <class T, int K, int N, int Products, class Layout = ducks::st_layout::swizzle>
struct problem {
  static constexpr int kAll = N + 16;  // columns of d
  // Of a's numbers, T holds the multiples of 4 (half) and of 16 (bf16) alone: most are rounded.
  std::vector<float> a = whole_numbers(Products * 64 * K, 4000, 1);
  std::vector<float> b = whole_numbers(Products * K * N, 2, 2);
  std::vector<float> c = whole_numbers(64 * kAll, 50, 3);
  std::vector<float> with_sums, plain, sums;

  problem() {
    // Eight columns are to have the sums: they begin alike.
    for (int row = 0; row < 64; ++row) {
      for (int i = 1; i < 8; ++i) c[row * kAll + N + i] = c[row * kAll + N];
    }
  }

  void compute() {
    const buffer<float> a_in(a), b_in(b), c_in(c), with_sums_out(size_t{64 * kAll}),
        plain_out(size_t{64 * N}), sums_out(size_t{64});
    run(products<T, K, N, Products, Layout>,
        {.grid = {1}, .block = {128}, .shared_bytes = sizeof(operands<T, K, N, Products, Layout>)},
        a_in.data(), b_in.data(), c_in.data(), with_sums_out.data(), plain_out.data(),
        sums_out.data());
    with_sums = with_sums_out.get();
    plain = plain_out.get();
    sums = sums_out.get();
  }

  // c's number and, of each product's row, the rounded elements, times `factor` of (product, k).
  template <class F>
  double sum(int row, int col, F factor) const {
    double total = c[row * kAll + col];
    for (int i = 0; i < Products; ++i) {
      for (int k = 0; k < K; ++k) {
        total += double{round_to<T>(a[(i * 64 + row) * K + k])} * factor(i, k);
      }
    }
    return total;
  }
  double row_sum(int row) const {
    return sum(row, N, [](int, int) { return 1.0; });
  }
  double element(int row, int col) const {
    return sum(row, col, [&](int i, int k) { return b[(i * K + k) * N + col]; });
  }
};

template <class T, int K, int N, int Products = 1, class Layout = ducks::st_layout::swizzle>
void check_product() {
  problem<T, K, N, Products, Layout> p;
  p.compute();
  check_tile<rt_fl<64, N + 16>>(p.with_sums, [&](int row, int col) {
    if (col < N) return p.element(row, col);
    return col < N + 8 ? p.row_sum(row) : p.c[row * p.kAll + col];
  });
  check_tile<rt_fl<64, N>>(p.plain,
                           [&](int row, int col) { return p.with_sums[row * p.kAll + col]; });
  for (int row = 0; row < 64; ++row) CHECK_EQUAL(p.sums[row], p.row_sum(row));
}

// Swizzles over 32 bytes (N = 16, 48 and 240: one, three and fifteen chunks before the ones), over
// 64 (32 and 96) and over 128 (64 and 128).
template <class T>
void check_all_shapes() {
  check_product<T, 16, 16>();
  check_product<T, 32, 32>();
  check_product<T, 64, 48>();
  check_product<T, 48, 64>();
  check_product<T, 80, 96>();
  check_product<T, 128, 128>();
  check_product<T, 16, 240>();
  check_product<T, 128, 16>();
  check_product<T, 112, 240>();
}

TEST(row_sums_of_bf16) { check_all_shapes<bf16>(); }
TEST(row_sums_of_half) { check_all_shapes<half>(); }

TEST(several_products_add_up) {
  check_product<bf16, 32, 48, 2>();
  check_product<bf16, 64, 128, 3>();
  check_product<half, 48, 96, 2>();
}

TEST(ones_in_the_padding) {
  using padded = ducks::st_layout::swizzle_128;
  check_product<bf16, 32, 80, 1, padded>();
  check_product<bf16, 80, 96, 2, padded>();
  check_product<half, 48, 16, 1, padded>();
  check_product<half, 16, 240, 1, padded>();
  check_product<bf16, 32, 64, 1, padded>();  // no padding: a chunk of ones
}

// Numbers whose sums are rounded: the product is that of mma_AB to the bit, the sums are close.
template <class T, int K, int N>
void check_rounding() {
  problem<T, K, N, 2> p;
  p.a = testing::random_values(2 * 64 * K, 4);
  p.b = testing::random_values(2 * K * N, 5);
  p.compute();
  check_tile<rt_fl<64, N>>(p.plain,
                           [&](int row, int col) { return p.with_sums[row * p.kAll + col]; });
  for (int row = 0; row < 64; ++row) {
    // Each of 2 · K / 16 additions to c, at most 50, and of 16 numbers, at most 2, is cut off at
    // 2⁻²² of the largest sum or so (tensor cores truncate).
    const double largest = 50 + 2.0 * 2 * K;
    CHECK_CLOSE(p.sums[row], p.row_sum(row), (2 * K / 16 + 1) * 17 * largest * 0x1p-22);
  }
}

TEST(rounding_is_that_of_mma_AB) {
  check_rounding<bf16, 128, 64>();
  check_rounding<bf16, 112, 240>();
  check_rounding<half, 64, 48>();
}

// The ones are set once, in a chunk of their own or in the padding; the tile beside them is filled
// again for each product. Two warpgroups share them, each with its own rows.
template <int K, int N, class Layout>
__global__ void __launch_bounds__(256)
    in_turn(const float* a, const float* b, float* products, float* sums, int rounds) {
  auto& s = *reinterpret_cast<st_ones<bf16, K, N, Layout>*>(arch::dynamic_shared());
  group<8>::set_ones(s);
  rt_fl<16, N + 16> d;
  zero(d);
  for (int round = 0; round < rounds; ++round) {
    arch::sync_block();
    if (arch::warp_id() == 0) gather(s.tile, b + round * K * N);
    arch::fence_async_proxy();
    arch::sync_block();
    rt_bf<16, K> rows;
    gather(rows, a + (round * 8 + arch::warp_id()) * 16 * K);
    warpgroup::mma_fence(d);
    warpgroup::mma_AB_row_sums(d, rows, s);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(d);
    mul(d, d, 2.0f);
  }
  scatter(products + arch::warp_id() * 16 * (N + 16), d);
  typename rt_fl<16, N + 16>::col_vec vec;
  row_sums_of(vec, d);
  scatter(sums + arch::warp_id() * 16, vec);
}

template <int N, class Layout>
void check_rounds() {
  constexpr int K = 32, kRounds = 3, kAll = N + 16;
  const auto a = whole_numbers(kRounds * 128 * K, 100, 6), b = whole_numbers(kRounds * K * N, 8, 7);
  const buffer<float> a_in(a), b_in(b), products(size_t{128 * kAll}), sums(size_t{128});
  run(in_turn<K, N, Layout>,
      {.grid = {1}, .block = {256}, .shared_bytes = sizeof(st_ones<bf16, K, N, Layout>)},
      a_in.data(), b_in.data(), products.data(), sums.data(), kRounds);
  const auto want = [&](int row, int col) {
    float total = 0.0f;
    for (int round = 0; round < kRounds; ++round) {
      for (int k = 0; k < K; ++k) {
        const float x = a[(round * 128 + row) * K + k];
        total += col < N ? x * b[(round * K + k) * N + col] : col < N + 8 ? x : 0.0f;
      }
      total *= 2.0f;
    }
    return total;
  };
  check_tile<rt_fl<128, kAll>>(products.get(), want);
  const std::vector<float> got = sums.get();
  for (int row = 0; row < 128; ++row) CHECK_EQUAL(got[row], want(row, N));
}

TEST(the_ones_are_set_once) {
  check_rounds<64, ducks::st_layout::swizzle>();
  check_rounds<80, ducks::st_layout::swizzle_128>();
}

}  // namespace
