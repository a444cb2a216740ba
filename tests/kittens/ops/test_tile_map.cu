// ops/register/tile_map.cuh: element-wise maths on tiles, with numbers, and with values per row and
// column.
#include <cmath>
#include <limits>

#include "tiles.h"

using namespace kittens;
using testing::gather;
using testing::scatter;

namespace {

// An operation on the tiles x and y, with one value u per row and v per column, and what it makes
// of an element.
// clang-format off
#define INDEXED(X) \
  X(add(d, x, y), x + y) \
  X(fma(d, x, y, x), std::fmaf(x, y, x)) \
  X(add_row(d, x, u), x + u) \
  X(add_col(d, x, v), x + v) \
  X(copy(d, x); mul_row(d, d, u), x * u) \
  X(copy(d, x); sub_col(d, d, v), x - v)

#define EXACT(X) \
  X(sub(d, x, y), x - y) \
  X(mul(d, x, y), x * y) \
  X(div(d, x, y), x / y) \
  X(max(d, x, y), std::fmax(x, y)) \
  X(min(d, x, y), std::fmin(x, y)) \
  X(add(d, x, 0.75f), x + 0.75f) \
  X(sub(d, x, 0.75f), x - 0.75f) \
  X(mul(d, x, 0.75f), x * 0.75f) \
  X(div(d, x, 0.75f), x / 0.75f) \
  X(max(d, x, 0.75f), std::fmax(x, 0.75f)) \
  X(min(d, x, 0.75f), std::fmin(x, 0.75f)) \
  X(abs(d, x), std::fabs(x)) \
  X(relu(d, x), std::fmax(x, 0.0f)) \
  X(copy(d, y), y) \
  X(zero(d), 0.0f) \
  X(one(d), 1.0f) \
  X(pos_infty(d), kInfinity) \
  X(neg_infty(d), -kInfinity) \
  X(fill(d, -3.5f), -3.5f) \
  X(sub_row(d, x, u), x - u) \
  X(mul_row(d, x, u), x * u) \
  X(div_row(d, x, u), x / u) \
  X(max_row(d, x, u), std::fmax(x, u)) \
  X(min_row(d, x, u), std::fmin(x, u)) \
  X(sub_col(d, x, v), x - v) \
  X(mul_col(d, x, v), x * v) \
  X(div_col(d, x, v), x / v) \
  X(max_col(d, x, v), std::fmax(x, v)) \
  X(min_col(d, x, v), std::fmin(x, v)) \
  X(copy(d, x); mul(d, d, d), x * x) \
  X(map(difference{}, d, x, y), 2 * x - y) \
  X(map_rows(difference{}, d, x, u), 2 * x - u) \
  X(map_cols(difference{}, d, x, v), 2 * x - v)

#define APPROXIMATE(X) \
  X(exp(d, x), std::exp(x)) \
  X(exp2(d, x), std::exp2(x)) \
  X(abs(d, x); log(d, d), std::log(std::fabs(x))) \
  X(abs(d, x); log2(d, d), std::log2(std::fabs(x)))
// clang-format on

struct difference {
  KITTENS_DEVICE float operator()(float a, float b) const { return fmaf(2.0f, a, -b); }
};

struct operation {
  const char* name;
  float (*want)(float x, float y, float u, float v);
};
#define REFERENCE(call, expression)                                                    \
  operation{#call, [](float x, float y, float u, float v) -> float {                   \
              return static_cast<void>(x), static_cast<void>(y), static_cast<void>(u), \
                     static_cast<void>(v), expression;                                 \
            }},
const operation kOperations[] = {INDEXED(REFERENCE) EXACT(REFERENCE) APPROXIMATE(REFERENCE)};
#define COUNT(call, expression) +1
constexpr int kIndexed = INDEXED(COUNT), kExact = kIndexed EXACT(COUNT);

// in: x, y, a value per row, one per column; out: the result of each operation. All of them on one
// base tile; those that differ in what they index, on every tile (ptxas takes minutes for all).
#define RUN(call, expression) \
  {                           \
    R d;                      \
    call;                     \
    scatter(out, d);          \
    out += R::num_elements;   \
  }
template <class R>
__global__ void run_all(const float* in, float* out) {
  R x, y;
  rv<float, R::rows, typename R::col_vec::layout> u;  // not of the tile's type, as in softmax
  typename R::row_vec v;
  gather(x, in);
  gather(y, in + R::num_elements);
  gather(u, in + 2 * R::num_elements);
  gather(v, in + 2 * R::num_elements + R::rows);
  INDEXED(RUN)
  if constexpr (R::num_elements == kBase * kBase) {
    EXACT(RUN)
    APPROXIMATE(RUN)
  }
}

template <class R>
void check(const std::vector<float>& got, const std::vector<float>& in, const operation& op,
           double tolerance) {
  using T = typename R::dtype;
  const int before = testing::failed_checks;
  testing::check_tile<R>(
      got,
      [&](int r, int c) {
        const float x = in[r * R::cols + c], y = in[R::num_elements + r * R::cols + c];
        const float u = in[2 * R::num_elements + r], v = in[2 * R::num_elements + R::rows + c];
        return testing::round_to<T>(op.want(x, y, u, v));
      },
      tolerance);
  if (testing::failed_checks != before) std::printf("  … in %s\n", op.name);
}

TEST(every_operation_on_every_tile) {
  testing::for_each_register_tile([&]<class R>() {
    using T = typename R::dtype;
    std::vector<float> in = testing::random_tile<R>(1);
    for (const float value : testing::random_tile<R>(2)) in.push_back(value);
    for (const float value : testing::random_values(R::rows + R::cols, 3)) {
      in.push_back(testing::round_to<T>(value));
    }
    const bool one_base = R::num_elements == kBase * kBase;
    const int all = one_base ? static_cast<int>(std::size(kOperations)) : kIndexed;
    const std::vector<float> got = testing::run_on_tile(run_all<R>, in, all * R::num_elements);
    for (int i = 0; i < all; ++i) {
      const auto begin = got.begin() + i * R::num_elements;
      const std::vector<float> tile(begin, begin + R::num_elements);
      // Results are below 8. An approximation within a few units in the last place may round to
      // the neighbour.
      const double tolerance = i < kExact ? 0.0 : 8 * (4 * 0x1p-23 + 2 * testing::rounding<T>());
      check<R>(tile, in, kOperations[i], tolerance);
    }
  });
}

// To every type, in both layouts; the values are between those of 16 bits.
template <class D, class S>
__global__ void converted(const float* in, float* out) {
  S src;
  D dst;
  gather(src, in);
  copy(dst, src);
  scatter(out, dst);
}

TEST(copy_rounds_to_nearest_even) {
  testing::for_each_dtype([&]<class To>() {
    testing::for_each_register_tile([&]<class S>() {
      using D = rt<To, S::rows, S::cols, typename S::layout>;
      std::vector<float> in = testing::random_tile<S>(4);
      in[0] = testing::round_to<typename S::dtype>(1.0f + 0x1p-8f);  // halfway, in bf16
      in[1] = -0.0f;
      in[2] = std::numeric_limits<float>::quiet_NaN();
      in[3] = -kInfinity;
      const auto got = testing::run_on_tile(converted<D, S>, in, S::num_elements);
      testing::check_tile<S>(
          got, [&](int r, int c) { return testing::round_to<To>(in[r * S::cols + c]); });
      CHECK(std::signbit(got[1]));
    });
  });
}

// One rounding: in 16 bits alone, x + 1 − 1 would lose x.
template <class R>
__global__ void sum_and_difference(const float* in, float* out) {
  R x;
  gather(x, in);
  map([](float a) { return a * 0x1p-12f + 1.0f - 1.0f; }, x, x);
  scatter(out, x);
}

TEST(maps_compute_in_float) {
  testing::for_each_dtype([&]<class T>() {
    using R = rt<T, 16, 16>;
    const auto in = testing::random_tile<R>(5);
    testing::check_tile<R>(
        testing::run_on_tile(sum_and_difference<R>, in, R::num_elements), [&](int r, int c) {
          return testing::round_to<T>(in[r * R::cols + c] * 0x1p-12f + 1.0f - 1.0f);
        });
  });
}

}  // namespace
