// ops/register/tile_mma.cuh: matrix products by one warp. Small integers, so that every sum is
// exact.
#include <random>
#include <vector>

#include "tiles.h"

using namespace kittens;
using testing::gather;
using testing::scatter;

namespace {

using row = ducks::rt_layout::row;
using col = ducks::rt_layout::col;

// One of the four products of an M × K and a K × N matrix, of which a or b comes transposed.
template <class T, int M, int N, int K, bool ATransposed, bool BTransposed>
struct product {
  using a_tile = std::conditional_t<ATransposed, rt<T, K, M, col>, rt<T, M, K, row>>;
  using b_tile = std::conditional_t<BTransposed, rt<T, N, K, row>, rt<T, K, N, col>>;
  using d_tile = rt_fl<M, N>;

  KITTENS_DEVICE static void mma(d_tile& d, const a_tile& a, const b_tile& b, const d_tile& c) {
    if constexpr (ATransposed && BTransposed) {
      mma_AtBt(d, a, b, c);
    } else if constexpr (ATransposed) {
      mma_AtB(d, a, b, c);
    } else if constexpr (BTransposed) {
      mma_ABt(d, a, b, c);
    } else {
      mma_AB(d, a, b, c);
    }
  }
  KITTENS_DEVICE static void mm(d_tile& d, const a_tile& a, const b_tile& b) {
    if constexpr (ATransposed && BTransposed) {
      mm_AtBt(d, a, b);
    } else if constexpr (ATransposed) {
      mm_AtB(d, a, b);
    } else if constexpr (BTransposed) {
      mm_ABt(d, a, b);
    } else {
      mm_AB(d, a, b);
    }
  }
};

// in: a, b, c. out: a·b + c; the same in place of c, twice; a·b.
template <class P>
__global__ void multiply(const float* in, float* out) {
  typename P::a_tile a;
  typename P::b_tile b;
  typename P::d_tile c, d;
  gather(a, in);
  gather(b, in + a.num_elements);
  gather(c, in + a.num_elements + b.num_elements);
  P::mma(d, a, b, c);
  scatter(out, d);
  P::mma(c, a, b, c);
  P::mma(c, a, b, c);
  scatter(out + d.num_elements, c);
  P::mm(d, a, b);
  scatter(out + 2 * d.num_elements, d);
}

template <class T, int M, int N, int K, bool ATransposed, bool BTransposed>
void check_product() {
  using P = product<T, M, N, K, ATransposed, BTransposed>;
  using D = typename P::d_tile;
  std::mt19937 generator(M + N + K);
  std::vector<float> in;
  for (int i = 0; i < M * K + K * N + M * N; ++i)
    in.push_back(static_cast<int>(generator() % 17) - 8);
  const auto got = testing::run_on_tile(multiply<P>, in, 3 * M * N);

  const auto sum = [&](int r, int c) {
    float value = 0.0f;
    for (int k = 0; k < K; ++k) {
      value += in[ATransposed ? k * M + r : r * K + k] *
               in[M * K + (BTransposed ? c * K + k : k * N + c)];
    }
    return value;
  };
  for (const int times : {1, 2, 0}) {  // in the order of `out`; 0: once, without c
    const auto begin = got.begin() + (times == 0 ? 2 : times - 1) * M * N;
    testing::check_tile<D>({begin, begin + M * N}, [&](int r, int c) {
      const float onto = in[M * K + K * N + r * N + c];
      return times == 0 ? sum(r, c) : onto + times * sum(r, c);
    });
  }
}

template <class T, int M, int N, int K>
void check_products() {
  check_product<T, M, N, K, false, false>();
  check_product<T, M, N, K, false, true>();
  check_product<T, M, N, K, true, false>();
  check_product<T, M, N, K, true, true>();
}

template <class T>
void check_shapes() {
  check_products<T, 16, 16, 16>();
  check_products<T, 16, 48, 32>();
  check_products<T, 32, 16, 64>();
  check_products<T, 48, 32, 16>();
}

TEST(products_of_bf16) { check_shapes<bf16>(); }
TEST(products_of_half) { check_shapes<half>(); }

// Attention's two products: the first one's result, in 16 bits, is the second one's left operand.
__global__ void chained(const float* in, float* out) {
  rt_bf<16, 32> q, p;
  rt_bf<32, 32> k;
  rt_bf<32, 32, col> v;
  rt_fl<16, 32> s;
  gather(q, in);
  gather(k, in + 512);
  gather(v, in + 1536);
  mm_ABt(s, q, k);
  copy(p, s);
  mm_AB(s, p, v);
  scatter(out, s);
}

TEST(a_result_is_the_next_operand) {
  std::mt19937 generator(7);
  std::vector<float> in;  // ones and zeros: q·kᵀ is at most 32
  for (int i = 0; i < 512 + 2 * 1024; ++i) in.push_back(generator() % 2);
  const auto got = testing::run_on_tile(chained, in, 512);
  testing::check_tile<rt_fl<16, 32>>(got, [&](int r, int c) {
    float value = 0.0f;
    for (int j = 0; j < 32; ++j) {
      for (int d = 0; d < 32; ++d) {
        value += in[r * 32 + d] * in[512 + j * 32 + d] * in[1536 + j * 32 + c];
      }
    }
    return value;
  });
}

}  // namespace
