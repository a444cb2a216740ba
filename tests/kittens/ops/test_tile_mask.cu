// ops/register/tile_mask.cuh: triangles and borders of tiles, wherever they are cut.
#include <climits>
#include <vector>

#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::gather;
using testing::run;
using testing::scatter;

namespace {

constexpr float kFill = -7.5f;
enum { kTril, kTriu, kRight, kLeft, kLower, kUpper, kMasks };

// Whether mask `kind` replaces element (r, c).
bool replaced(int kind, int r, int c, int64_t cut) {
  const bool all[kMasks] = {c > r + cut, c < r + cut, c >= cut, c < cut, r >= cut, r < cut};
  return all[kind];
}

template <class R>
__global__ void mask_all(const float* in, float* out, int cut) {
  R src;
  gather(src, in);
#define MASK(name)              \
  {                             \
    R dst = src;                \
    name(dst, dst, cut, kFill); \
    scatter(out, dst);          \
    out += R::num_elements;     \
  }
  MASK(tril) MASK(triu) MASK(right_fill) MASK(left_fill) MASK(lower_fill) MASK(upper_fill)
}

template <class R>
void check_masks(const std::vector<float>& in, int cut) {
  const buffer<float> source(in), out(static_cast<size_t>(kMasks * R::num_elements));
  run(mask_all<R>, {.grid = {1}, .block = {kWarp}}, source.data(), out.data(), cut);
  const std::vector<float> all = out.get();
  for (int kind = 0; kind < kMasks; ++kind) {
    const auto begin = all.begin() + kind * R::num_elements;
    testing::check_tile<R>({begin, begin + R::num_elements}, [&](int r, int c) {
      return replaced(kind, r, c, cut) ? kFill : in[r * R::cols + c];
    });
  }
}

TEST(masks_cut_anywhere) {
  testing::for_each_register_tile([&]<class R>() {
    const std::vector<float> in = testing::exact_tile<R>();
    for (int cut = -R::rows - 1; cut <= R::cols + R::rows + 1; cut += 3) check_masks<R>(in, cut);
    for (const int cut : {-1, 0, 1, R::rows - 1, R::cols - 1, R::rows, R::cols, R::rows + 1}) {
      check_masks<R>(in, cut);
    }
    for (const int cut : {INT_MIN, INT_MIN + 1, INT_MAX - 1, INT_MAX}) check_masks<R>(in, cut);
  });
}

// From another type, with an infinity.
template <class D, class S>
__global__ void causal(const float* in, float* out) {
  S src;
  D dst;
  gather(src, in);
  make_causal(dst, src, -kInfinity);
  scatter(out, dst);
}

template <class D, class S>
void check_causal() {
  const std::vector<float> in = testing::exact_tile<S>();
  testing::check_tile<S>(testing::run_on_tile(causal<D, S>, in, S::num_elements),
                         [&](int r, int c) { return c > r ? -kInfinity : in[r * S::cols + c]; });
}

TEST(make_causal_keeps_the_diagonal_and_what_is_below) {
  testing::for_each_dtype([&]<class T>() {
    check_causal<rt<T, 16, 16>, rt<T, 16, 16>>();
    check_causal<rt<T, 64, 64>, rt_fl<64, 64>>();
    check_causal<rt<T, 48, 48, ducks::rt_layout::col>, rt_bf<48, 48, ducks::rt_layout::col>>();
  });
}

}  // namespace
