// ops/warpgroup_mma.cuh: products of a warpgroup, in each orientation, with every swizzle, a from
// shared memory and from registers; tiles with padding, which is NaNs here. The values are small
// whole numbers, so that the sums are exact in whatever order the hardware adds.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::check_tile;
using testing::gather;
using testing::run;
using testing::scatter;
using testing::spoil_padding;

namespace {

enum class product { AB, ABt, AtB, AtBt };

constexpr bool a_transposed(product p) { return p == product::AtB || p == product::AtBt; }
constexpr bool b_transposed(product p) { return p == product::ABt || p == product::AtBt; }

template <product P, class T, int N, int K, class Layout>
struct tiles {
  using a = std::conditional_t<a_transposed(P), st<T, K, 64, Layout>, st<T, 64, K, Layout>>;
  using b = std::conditional_t<b_transposed(P), st<T, N, K, Layout>, st<T, K, N, Layout>>;
  using d = rt_fl<16, N>;
  a shared_a;
  b shared_b;
};

template <product P, class D, class A, class B>
KITTENS_DEVICE void accumulate(D& d, const A& a, const B& b) {
  if constexpr (P == product::AB) warpgroup::mma_AB(d, a, b);
  if constexpr (P == product::ABt) warpgroup::mma_ABt(d, a, b);
  if constexpr (P == product::AtB) warpgroup::mma_AtB(d, a, b);
  if constexpr (P == product::AtBt) warpgroup::mma_AtBt(d, a, b);
}
template <product P, class D, class A, class B>
KITTENS_DEVICE void overwrite(D& d, const A& a, const B& b) {
  if constexpr (P == product::AB) warpgroup::mm_AB(d, a, b);
  if constexpr (P == product::ABt) warpgroup::mm_ABt(d, a, b);
  if constexpr (P == product::AtB) warpgroup::mm_AtB(d, a, b);
  if constexpr (P == product::AtBt) warpgroup::mm_AtBt(d, a, b);
}

// sum = c + op(a)·op(b), plain = op(a)·op(b): the second one in registers that held the first.
template <product P, class D, class A, class B>
KITTENS_DEVICE void multiply(const A& a, const B& b, const float* c, float* sum, float* plain) {
  const int first = arch::warp_id() * 16 * D::cols;
  D d;
  gather(d, c + first);
  warpgroup::mma_fence(d);
  accumulate<P>(d, a, b);
  warpgroup::mma_commit_group();
  warpgroup::mma_async_wait<0>();
  scatter(sum + first, d);
  warpgroup::mma_fence();
  overwrite<P>(d, a, b);
  warpgroup::mma_commit_group();
  warpgroup::mma_async_wait<0>(d);
  scatter(plain + first, d);
}

template <product P, bool FromRegisters, class T, int N, int K, class Layout>
__global__ void __launch_bounds__(128)
    products(const float* a, const float* b, const float* c, float* sum, float* plain) {
  using tiles = tiles<P, T, N, K, Layout>;
  auto& s = *reinterpret_cast<tiles*>(arch::dynamic_shared());
  if (arch::warp_id() == 0) {
    gather(s.shared_a, a);
    gather(s.shared_b, b);
    spoil_padding(s.shared_a);
    spoil_padding(s.shared_b);
    arch::fence_async_proxy();
  }
  arch::sync_block();
  if constexpr (FromRegisters) {
    rt<T, 16, K> rows;
    gather(rows, a + arch::warp_id() * 16 * K);
    multiply<P, typename tiles::d>(rows, s.shared_b, c, sum, plain);
  } else {
    multiply<P, typename tiles::d>(s.shared_a, s.shared_b, c, sum, plain);
  }
}

// Whole numbers from −8 to 8, in no pattern that a wrong address could hit.
std::vector<float> whole_numbers(int n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(generator() % 17) - 8.0f);
  return values;
}

template <product P, bool FromRegisters, class T, int N, int K,
          class Layout = ducks::st_layout::swizzle>
void check_product() {
  using out = rt_fl<64, N>;
  const auto a = whole_numbers(64 * K, 1), b = whole_numbers(N * K, 2),
             c = whole_numbers(64 * N, 3);
  const buffer<float> a_in(a), b_in(b), c_in(c), sum(size_t{64 * N}), plain(size_t{64 * N});
  run(products<P, FromRegisters, T, N, K, Layout>,
      {.grid = {1}, .block = {128}, .shared_bytes = sizeof(tiles<P, T, N, K, Layout>)}, a_in.data(),
      b_in.data(), c_in.data(), sum.data(), plain.data());
  const auto want = [&](int row, int col) {
    float total = 0.0f;
    for (int k = 0; k < K; ++k) {
      total += (a_transposed(P) ? a[k * 64 + row] : a[row * K + k]) *
               (b_transposed(P) ? b[col * K + k] : b[k * N + col]);
    }
    return total;
  };
  check_tile<out>(plain.get(), want);
  check_tile<out>(sum.get(), [&](int row, int col) { return c[row * N + col] + want(row, col); });
}

// Rows of 32 bytes are swizzled over 32 (16 and 48 columns: one and three chunks), of 64 over 64
// (32 and 96 columns), of 128 over 128 (64, 128 and 256 columns).
template <product P, bool FromRegisters, class T>
void check_all_shapes() {
  check_product<P, FromRegisters, T, 16, 16>();
  check_product<P, FromRegisters, T, 48, 32>();
  check_product<P, FromRegisters, T, 32, 48>();
  check_product<P, FromRegisters, T, 96, 64>();
  check_product<P, FromRegisters, T, 64, 96>();
  check_product<P, FromRegisters, T, 128, 128>();
  check_product<P, FromRegisters, T, 256, 16>();
}

TEST(mma_AB_of_shared_tiles) { check_all_shapes<product::AB, false, bf16>(); }
TEST(mma_AB_with_a_in_registers) { check_all_shapes<product::AB, true, bf16>(); }
TEST(mma_ABt_of_shared_tiles) { check_all_shapes<product::ABt, false, bf16>(); }
TEST(mma_ABt_with_a_in_registers) { check_all_shapes<product::ABt, true, bf16>(); }
TEST(mma_AtB) { check_all_shapes<product::AtB, false, bf16>(); }
TEST(mma_AtBt) { check_all_shapes<product::AtBt, false, bf16>(); }

TEST(products_of_half) {
  check_product<product::AB, false, half, 64, 48>();
  check_product<product::AB, true, half, 48, 64>();
  check_product<product::ABt, false, half, 64, 32>();
  check_product<product::ABt, true, half, 32, 64>();
  check_product<product::AtB, false, half, 128, 64>();
  check_product<product::AtBt, false, half, 128, 64>();
}

// a has padding where it is [64, K], b in both orientations: it lies behind the last columns of N,
// or of K.
template <product P, bool FromRegisters, class T>
void check_padded_shapes() {
  using padded = ducks::st_layout::swizzle_128;
  check_product<P, FromRegisters, T, 80, 96, padded>();
  check_product<P, FromRegisters, T, 96, 80, padded>();
  check_product<P, FromRegisters, T, 16, 48, padded>();
  check_product<P, FromRegisters, T, 208, 16, padded>();
}

TEST(mma_AB_of_padded_tiles) { check_padded_shapes<product::AB, false, bf16>(); }
TEST(mma_AB_of_padded_b) { check_padded_shapes<product::AB, true, half>(); }
TEST(mma_ABt_of_padded_tiles) { check_padded_shapes<product::ABt, false, bf16>(); }
TEST(mma_ABt_of_padded_b) { check_padded_shapes<product::ABt, true, half>(); }
TEST(mma_AtB_of_padded_b) { check_padded_shapes<product::AtB, false, bf16>(); }
TEST(mma_AtBt_of_padded_b) { check_padded_shapes<product::AtBt, false, half>(); }

// Two warpgroups, each with its own rows; two groups of products under way, and a wait for the
// older.
__global__ void __launch_bounds__(256) two_at_a_time(const float* a, const float* b, float* out) {
  struct shared {
    st_bf<64, 64> a[2], b;
  };
  auto& s = *reinterpret_cast<shared*>(arch::dynamic_shared());
  if (arch::warp_id() < 2) {
    gather(s.a[arch::warp_id()], a + arch::warp_id() * 64 * 64);
    if (arch::warp_id() == 0) gather(s.b, b);
    arch::fence_async_proxy();
  }
  arch::sync_block();
  const int w = warpgroupid(), first = arch::warp_id() * 16 * 64;
  rt_fl<16, 64> x, y;
  warpgroup::mma_fence();
  warpgroup::mm_AB(x, s.a[w], s.b);
  warpgroup::mma_commit_group();
  warpgroup::mma_fence();
  warpgroup::mm_ABt(y, s.a[w], s.b);
  warpgroup::mma_commit_group();
  warpgroup::mma_async_wait<1>();
  scatter(out + first, x);
  warpgroup::mma_async_wait();
  scatter(out + 128 * 64 + first, y);
}

TEST(warpgroups_have_products_of_their_own) {
  const auto a = whole_numbers(128 * 64, 4), b = whole_numbers(64 * 64, 5);
  const buffer<float> a_in(a), b_in(b), out(size_t{2 * 128 * 64});
  run(two_at_a_time, {.grid = {1}, .block = {256}, .shared_bytes = 3 * sizeof(st_bf<64, 64>)},
      a_in.data(), b_in.data(), out.data());
  const std::vector<float> got = out.get();
  check_tile<rt_fl<256, 64>>(got, [&](int row, int col) {
    float total = 0.0f;
    for (int k = 0; k < 64; ++k) {
      total += a[row % 128 * 64 + k] * (row < 128 ? b[k * 64 + col] : b[col * 64 + k]);
    }
    return total;
  });
}

}  // namespace
