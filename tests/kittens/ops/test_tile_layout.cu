// ops/register/tile_layout.cuh: the other layout, and the transposed tile.
#include <type_traits>
#include <vector>

#include "tiles.h"

using namespace kittens;
using testing::gather;
using testing::scatter;

namespace {

template <class R>
using other = rt<typename R::dtype, R::rows, R::cols,
                 std::conditional_t<R::is_row, ducks::rt_layout::col, ducks::rt_layout::row>>;

// out: the tile swapped, and swapped in place.
template <class R>
__global__ void swap_both(const float* in, float* out) {
  R tile;
  gather(tile, in);
  other<R> swapped;
  swap_layout(swapped, tile);
  scatter(out, swapped);
  auto& in_place = swap_layout_inplace(tile);
  static_assert(std::is_same_v<decltype(in_place), other<R>&>);
  scatter(out + R::num_elements, in_place);
}

TEST(swap_layout_moves_no_element) {
  testing::for_each_register_tile([&]<class R>() {
    const std::vector<float> in = testing::exact_tile<R>();
    const auto both = testing::run_on_tile(swap_both<R>, in, 2 * R::num_elements);
    const auto middle = both.begin() + R::num_elements;
    const auto same = [&](int r, int c) { return in[r * R::cols + c]; };
    testing::check_tile<R>({both.begin(), middle}, same);
    testing::check_tile<R>({middle, both.end()}, same);
  });
}

template <class D, class S>
__global__ void transposed(const float* in, float* out) {
  S src;
  D dst;
  gather(src, in);
  transpose(dst, src);
  scatter(out, dst);
}

template <class D, class S>
void check_transpose() {
  const std::vector<float> in = testing::exact_tile<S>();
  testing::check_tile<D>(testing::run_on_tile(transposed<D, S>, in, S::num_elements),
                         [&](int r, int c) { return in[c * S::cols + r]; });
}

TEST(transpose_to_both_layouts) {
  testing::for_each_register_tile([&]<class S>() {
    using T = typename S::dtype;
    check_transpose<rt<T, S::cols, S::rows, ducks::rt_layout::row>, S>();
    check_transpose<rt<T, S::cols, S::rows, ducks::rt_layout::col>, S>();
  });
}

// A square tile onto itself.
template <class R>
__global__ void transposed_in_place(const float* in, float* out) {
  R tile;
  gather(tile, in);
  transpose(tile, tile);
  scatter(out, tile);
}

TEST(transpose_onto_the_source) {
  testing::for_each_dtype([&]<class T>() {
    using R = rt<T, 32, 32>;
    const std::vector<float> in = testing::exact_tile<R>();
    testing::check_tile<R>(testing::run_on_tile(transposed_in_place<R>, in, R::num_elements),
                           [&](int r, int c) { return in[c * R::cols + r]; });
  });
}

}  // namespace
