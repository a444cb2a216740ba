// ops/shared/tile_mma_shared.cuh: matrix products by one warp whose right side is in shared memory.
// Small integers, so that every sum is exact.
#include <random>
#include <vector>

#include "kittens/ops/shared/tile_mma_shared.cuh"
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
namespace st_layout = ducks::st_layout;

namespace {

// An M × K matrix times `Use` of the rows of a shared tile, from row `First` on: they are the rows
// of the K × N right side, or, transposed, its columns.
template <class T, class Layout, int M, int N, int K, bool Transposed, int Rows, int First>
struct product {
  static constexpr int kUse = Transposed ? N : K;
  using a_tile = rt<T, M, K>;
  using b_tile = st<T, Rows, Transposed ? K : N, Layout>;
  using d_tile = rt_fl<M, N>;

  template <class B>
  KITTENS_DEVICE static void multiply(d_tile (&d)[3], const a_tile& a, const B& b) {
    if constexpr (Transposed) {
      mma_ABt(d[0], a, b, d[1]);
      mma_ABt(d[1], a, b, d[1]);
      mma_ABt(d[1], a, b, d[1]);
      mm_ABt(d[2], a, b);
    } else {
      mma_AB(d[0], a, b, d[1]);
      mma_AB(d[1], a, b, d[1]);
      mma_AB(d[1], a, b, d[1]);
      mm_AB(d[2], a, b);
    }
  }
};

// in: a, the shared tile, c. out: a·b + c; the same in place of c, twice; a·b.
template <class P, int Rows, int First>
__global__ void multiply(const float* in, float* out) {
  auto& b = shared_allocator<>(arch::dynamic_shared()).template allocate<typename P::b_tile>();
  typename P::a_tile a;
  typename P::d_tile d[3];
  gather(a, in);
  gather(b, in + a.num_elements);
  spoil_padding(b);
  gather(d[1], in + a.num_elements + b.num_elements);
  if constexpr (P::kUse == Rows) {
    P::multiply(d, a, b);
  } else {
    P::multiply(d, a, rows_of<P::kUse>(b, First));
  }
  for (int i = 0; i < 3; ++i) scatter(out + i * d[i].num_elements, d[i]);
}

template <class T, class Layout, int M, int N, int K, bool Transposed,
          int Rows = Transposed ? N : K, int First = 0>
void check_product() {
  using P = product<T, Layout, M, N, K, Transposed, Rows, First>;
  using B = typename P::b_tile;
  std::mt19937 generator(M + N + K);
  std::vector<float> in;
  for (int i = 0; i < M * K + B::num_elements + M * N; ++i) {
    in.push_back(static_cast<int>(generator() % 17) - 8);
  }
  const auto got = run_on_tile(multiply<P, Rows, First>, in, 3 * M * N, sizeof(B));

  const float* const b = in.data() + M * K + First * B::cols;
  const auto sum = [&](int r, int c) {
    float value = 0.0f;
    for (int k = 0; k < K; ++k) {
      value += in[r * K + k] * (Transposed ? b[c * B::cols + k] : b[k * B::cols + c]);
    }
    return value;
  };
  for (const int times : {1, 2, 0}) {  // in the order of `out`; 0: once, without c
    const auto begin = got.begin() + (times == 0 ? 2 : times - 1) * M * N;
    check_tile<typename P::d_tile>({begin, begin + M * N}, [&](int r, int c) {
      const float onto = in[M * K + B::num_elements + r * N + c];
      return times == 0 ? sum(r, c) : onto + times * sum(r, c);
    });
  }
}

template <class T, class Layout>
void check_shapes() {
  check_product<T, Layout, 16, 16, 16, false>();
  check_product<T, Layout, 16, 16, 16, true>();
  check_product<T, Layout, 32, 48, 64, false>();
  check_product<T, Layout, 32, 48, 64, true>();
  check_product<T, Layout, 48, 128, 32, false>();  // two chunks of columns
  check_product<T, Layout, 48, 32, 128, true>();
}

TEST(products_of_bf16) { check_shapes<bf16, st_layout::swizzle>(); }
TEST(products_of_half) { check_shapes<half, st_layout::swizzle>(); }
TEST(products_of_tiles_without_swizzle) { check_shapes<bf16, st_layout::naive>(); }
TEST(products_of_padded_tiles) {
  check_product<bf16, st_layout::swizzle_128, 16, 80, 32, false>();
  check_product<bf16, st_layout::swizzle_128, 32, 32, 80, true>();
  check_product<half, st_layout::swizzle_128, 16, 16, 96, true, 64, 40>();
}
TEST(some_rows_of_the_right_side) {
  check_product<bf16, st_layout::swizzle, 16, 32, 64, true, 64, 32>();
  check_product<bf16, st_layout::swizzle, 16, 128, 16, false, 48, 16>();
  check_product<half, st_layout::swizzle, 32, 64, 32, false, 64, 32>();
}

}  // namespace
