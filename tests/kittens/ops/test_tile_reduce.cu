// ops/register/tile_reduce.cuh: sums, products and extremes of the rows and columns of tiles.
#include <cmath>
#include <limits>

#include "tiles.h"

using namespace kittens;
using testing::gather;
using testing::scatter;

namespace {

enum { kSum, kProd, kMax, kMin, kKinds };

// in: a tile, a number per row, one per column. out: each reduction of the rows, then the same onto
// the numbers, in place; then of the columns. Into float vectors, and of the tile's own type.
template <class R, template <class> class Element>
__global__ void reduce_all(const float* in, float* out) {
  using T = typename Element<R>::type;
  R tile;
  gather(tile, in);
  rv<T, R::rows, typename R::col_vec::layout> rows;
#define ROWS(name)                       \
  name(rows, tile);                      \
  scatter(out, rows);                    \
  gather(rows, in + R::num_elements);    \
  name(rows, tile, rows);                \
  scatter(out + kKinds * R::rows, rows); \
  out += R::rows;
  ROWS(row_sum) ROWS(row_prod) ROWS(row_max) ROWS(row_min) out += kKinds * R::rows;

  rv<T, R::cols, typename R::row_vec::layout> cols;
#define COLS(name)                              \
  name(cols, tile);                             \
  scatter(out, cols);                           \
  gather(cols, in + R::num_elements + R::rows); \
  name(cols, tile, cols);                       \
  scatter(out + kKinds * R::cols, cols);        \
  out += R::cols;
  COLS(col_sum) COLS(col_prod) COLS(col_max) COLS(col_min)
}

template <class R>
struct own {
  using type = typename R::dtype;
};
template <class R>
struct wide {
  using type = float;
};

struct expected {
  double value, tolerance;
};

// Of `n` values, `stride` apart.
expected reduce(int kind, const float* values, int n, int stride, const float* accum) {
  double all[kKinds] = {0, 1, -kInfinity, kInfinity}, magnitude = 0;
  const auto take = [&](double x) {
    magnitude += std::fabs(x);
    all[kSum] += x;
    all[kProd] *= x;
    all[kMax] = std::fmax(all[kMax], x);
    all[kMin] = std::fmin(all[kMin], x);
  };
  for (int i = 0; i < n; ++i) take(values[i * stride]);
  if (accum != nullptr) take(*accum);
  const double roundings = n * 0x1p-24;
  const double errors[kKinds] = {magnitude * roundings, std::fabs(all[kProd]) * roundings, 0, 0};
  return {all[kind], errors[kind]};
}

template <class R, template <class> class Element>
void check_reductions(const std::vector<float>& in) {
  const double rounding = testing::rounding<typename Element<R>::type>();
  const int results = 2 * kKinds * (R::rows + R::cols);
  const std::vector<float> got = testing::run_on_tile(reduce_all<R, Element>, in, results);
  const float* result = got.data();
  for (const bool of_rows : {true, false}) {
    const int n = of_rows ? R::cols : R::rows, count = of_rows ? R::rows : R::cols;
    for (const bool onto : {false, true}) {
      for (int kind = 0; kind < kKinds; ++kind) {
        for (int i = 0; i < count; ++i, ++result) {
          const float* accum = &in[R::num_elements + (of_rows ? i : R::rows + i)];
          const expected want = reduce(kind, &in[i * (of_rows ? R::cols : 1)], n,
                                       of_rows ? 1 : R::cols, onto ? accum : nullptr);
          CHECK_CLOSE(*result, want.value,
                      want.tolerance + (std::fabs(want.value) + want.tolerance) * rounding);
        }
      }
    }
  }
}

TEST(reductions_of_every_tile) {
  testing::for_each_register_tile([&]<class R>() {
    // Near 1, so that products stay within half's range.
    std::vector<float> in = testing::random_values(R::num_elements + R::rows + R::cols, 1);
    for (float& value : in) {
      value = testing::round_to<typename R::dtype>(std::copysign(0.75f, value) + 0.25f * value);
    }
    check_reductions<R, own>(in);
    if constexpr (R::rows == 32) check_reductions<R, wide>(in);
  });
}

// Each place is found, and the extremes of a row of infinities are infinite.
template <class R>
__global__ void row_and_col_max(const float* in, float* out) {
  R tile;
  typename R::col_vec rows;
  typename R::row_vec cols;
  gather(tile, in);
  row_max(rows, tile);
  col_max(cols, tile);
  scatter(out, rows);
  scatter(out + R::rows, cols);
}

TEST(a_maximum_anywhere) {
  testing::for_each_register_tile([&]<class R>() {
    constexpr int kStep = R::num_elements / 36 | 1;  // odd: into every column
    for (int place = 0; place < R::num_elements; place += kStep) {
      std::vector<float> in(R::num_elements, -kInfinity);
      in[place] = -2.0f;
      const auto got = testing::run_on_tile(row_and_col_max<R>, in, R::rows + R::cols);
      for (int i = 0; i < R::rows; ++i) {
        CHECK_EQUAL(got[i], i == place / R::cols ? -2.0f : -kInfinity);
      }
      for (int i = 0; i < R::cols; ++i) {
        CHECK_EQUAL(got[R::rows + i], i == place % R::cols ? -2.0f : -kInfinity);
      }
    }
  });
}

// Two tiles, with the sum of the first one scaled: as the softmax of attention keeps it.
template <class R>
__global__ void deferred_sums(const float* in, float* out) {
  R first, second;
  gather(first, in);
  gather(second, in + R::num_elements);
  rv<float, R::rows, typename R::col_vec::layout> rows;
  rv<float, R::cols, typename R::row_vec::layout> cols;
  zero(rows);
  zero(cols);
  partial_row_sum(rows, first, rows);
  partial_col_sum(cols, first, cols);
  mul(rows, rows, 0.5f);
  mul(cols, cols, 0.5f);
  partial_row_sum(rows, second, rows);
  partial_col_sum(cols, second, cols);
  finish_row_sum(rows);
  finish_col_sum(cols);
  scatter(out, rows);
  scatter(out + R::rows, cols);
}

TEST(deferred_sums_of_two_tiles) {
  testing::for_each_register_tile([&]<class R>() {
    std::vector<float> in = testing::random_tile<R>(3);
    const std::vector<float> second = testing::random_tile<R>(4);
    in.insert(in.end(), second.begin(), second.end());
    const auto got = testing::run_on_tile(deferred_sums<R>, in, R::rows + R::cols);
    std::vector<double> want(R::rows + R::cols, 0.0);
    for (int i = 0; i < R::num_elements; ++i) {
      const double value = 0.5 * in[i] + second[i];
      want[i / R::cols] += value;
      want[R::rows + i % R::cols] += value;
    }
    for (int i = 0; i < R::rows + R::cols; ++i) {  // of at most 64 values, each at most 3
      CHECK_CLOSE(got[i], want[i], 64 * 3 * 64 * 0x1p-24);
    }
  });
}

TEST(nan_stays_in_sums) {
  using R = rt_bf<16, 64>;
  std::vector<float> in(R::num_elements + R::rows + R::cols, 1.0f);
  in[5 * R::cols + 33] = std::numeric_limits<float>::quiet_NaN();
  const auto got = testing::run_on_tile(reduce_all<R, own>, in, 2 * kKinds * (R::rows + R::cols));
  for (int i = 0; i < R::rows; ++i) CHECK_EQUAL(std::isnan(got[i]), i == 5);
}

}  // namespace
