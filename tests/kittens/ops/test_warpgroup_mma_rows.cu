// ops/warpgroup_mma.cuh: products whose right side is some of a tile's rows.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::check_tile;
using testing::gather;
using testing::run;
using testing::scatter;
using testing::spoil_padding;

namespace {

// Of Some among All rows: a bᵀ, with a [64, Cols] and a column of d for each of b's rows; and p b,
// with row sums, where p [64, Some] comes from registers. Padding is NaNs.
template <class T, int All, int Some, int Cols, class Layout>
__global__ void __launch_bounds__(128)
    products(const float* a, const float* p, const float* b, int first, float* abt, float* pb) {
  struct operands {
    st<T, 64, Cols, Layout> a;
    st<T, All, Cols, Layout> b;
    st_ones<T, All, Cols, Layout> b_and_ones;
  };
  auto& s = *reinterpret_cast<operands*>(arch::dynamic_shared());
  if (arch::warp_id() == 0) {
    gather(s.a, a);
    gather(s.b, b);
    gather(s.b_and_ones.tile, b);
    spoil_padding(s.a);
    spoil_padding(s.b);
    spoil_padding(s.b_and_ones.tile);
    arch::fence_async_proxy();
  }
  arch::sync_block();
  warpgroup::set_ones(s.b_and_ones);
  arch::sync_block();
  rt<T, 16, Some> rows;
  gather(rows, p + arch::warp_id() * 16 * Some);
  rt_fl<16, Some> d;
  rt_fl<16, Cols + 16> e;
  zero(e);
  warpgroup::mma_fence(e);
  warpgroup::mm_ABt(d, s.a, rows_of<Some>(s.b, first));
  warpgroup::mma_AB_row_sums(e, rows, rows_of<Some>(s.b_and_ones, first));
  warpgroup::mma_commit_group();
  warpgroup::mma_async_wait<0>(e);
  scatter(abt + arch::warp_id() * 16 * Some, d);
  scatter(pb + arch::warp_id() * 16 * (Cols + 16), e);
}

// Whole numbers from −8 to 8: their sums are exact.
std::vector<float> whole_numbers(int n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(generator() % 17) - 8.0f);
  return values;
}

template <class T, int All, int Some, int Cols, class Layout = ducks::st_layout::swizzle>
void check_rows(int first) {
  const auto a = whole_numbers(64 * Cols, 1), p = whole_numbers(64 * Some, 2),
             b = whole_numbers(All * Cols, 3);
  const buffer<float> a_in(a), p_in(p), b_in(b), abt(size_t{64 * Some}),
      pb(size_t{64 * (Cols + 16)});
  constexpr int kShared = sizeof(st<T, 64, Cols, Layout>) + sizeof(st<T, All, Cols, Layout>) +
                          sizeof(st_ones<T, All, Cols, Layout>);
  run(products<T, All, Some, Cols, Layout>, {.grid = {1}, .block = {128}, .shared_bytes = kShared},
      a_in.data(), p_in.data(), b_in.data(), first, abt.data(), pb.data());
  check_tile<rt_fl<64, Some>>(abt.get(), [&](int row, int col) {
    float total = 0.0f;
    for (int k = 0; k < Cols; ++k) total += a[row * Cols + k] * b[(first + col) * Cols + k];
    return total;
  });
  check_tile<rt_fl<64, Cols + 16>>(pb.get(), [&](int row, int col) {
    float total = 0.0f;
    for (int k = 0; k < Some && col < Cols + 8; ++k) {
      total += p[row * Some + k] * (col < Cols ? b[(first + k) * Cols + col] : 1.0f);
    }
    return total;
  });
}

// Rows of one and of several chunks, which the swizzle spreads over 32, 64 and 128 bytes.
TEST(some_rows_of_the_right_side) {
  check_rows<bf16, 128, 64, 128>(0);
  check_rows<bf16, 128, 64, 128>(64);
  check_rows<bf16, 128, 16, 64>(48);
  check_rows<half, 64, 32, 96>(32);
  check_rows<half, 48, 32, 48>(8);
}

TEST(some_rows_of_a_padded_right_side) {
  using padded = ducks::st_layout::swizzle_128;
  check_rows<bf16, 64, 32, 80, padded>(24);
  check_rows<bf16, 128, 64, 96, padded>(64);
  check_rows<half, 48, 16, 80, padded>(32);
  check_rows<half, 64, 48, 16, padded>(8);
}

}  // namespace
