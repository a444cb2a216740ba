// ops/shared/elementwise.cuh: element-wise maths on shared tiles and vectors, by one warp and by
// groups.
#include <cmath>
#include <limits>

#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::gather;
using testing::run;
using testing::scatter;

namespace {

// An operation on the tiles x and y, with one value u per row and v per column, and what it makes
// of an element. `at` is the scope: nothing, or group<Warps>:: …
// clang-format off
#define INDEXED(X, at) \
  X(at add(d, x, y), x + y) \
  X(at fma(d, x, y, x), std::fmaf(x, y, x)) \
  X(at mul_row(d, x, u), x * u) \
  X(at add_col(d, x, v), x + v) \
  X(at copy(d, y), y) \
  X(at broadcast_row(d, u), u) \
  X(at broadcast_col(d, v), v) \
  X(at copy(d, x); MEET; at sub(d, d, y), x - y)

#define EXACT(X, at) \
  X(at sub(d, x, y), x - y) \
  X(at mul(d, x, y), x * y) \
  X(at div(d, x, y), x / y) \
  X(at max(d, x, y), std::fmax(x, y)) \
  X(at min(d, x, y), std::fmin(x, y)) \
  X(at add(d, x, 0.75f), x + 0.75f) \
  X(at sub(d, x, 0.75f), x - 0.75f) \
  X(at mul(d, x, 0.75f), x * 0.75f) \
  X(at div(d, x, 0.75f), x / 0.75f) \
  X(at max(d, x, 0.75f), std::fmax(x, 0.75f)) \
  X(at min(d, x, 0.75f), std::fmin(x, 0.75f)) \
  X(at abs(d, x), std::fabs(x)) \
  X(at relu(d, x), std::fmax(x, 0.0f)) \
  X(at zero(d), 0.0f) \
  X(at one(d), 1.0f) \
  X(at pos_infty(d), kInfinity) \
  X(at neg_infty(d), -kInfinity) \
  X(at fill(d, -3.5f), -3.5f) \
  X(at copy_unfenced(d, y), y) \
  X(at add_row(d, x, u), x + u) \
  X(at sub_row(d, x, u), x - u) \
  X(at div_row(d, x, u), x / u) \
  X(at max_row(d, x, u), std::fmax(x, u)) \
  X(at min_row(d, x, u), std::fmin(x, u)) \
  X(at sub_col(d, x, v), x - v) \
  X(at mul_col(d, x, v), x * v) \
  X(at div_col(d, x, v), x / v) \
  X(at max_col(d, x, v), std::fmax(x, v)) \
  X(at min_col(d, x, v), std::fmin(x, v)) \
  X(at map(difference{}, d, x, y), 2 * x - y) \
  X(at map_unfenced(difference{}, d, x, y), 2 * x - y) \
  X(at map_rows(difference{}, d, x, u), 2 * x - u) \
  X(at map_cols(difference{}, d, x, v), 2 * x - v) \
  X(at map_rows_unfenced(difference{}, d, x, u), 2 * x - u) \
  X(at map_cols_unfenced(difference{}, d, x, v), 2 * x - v)

#define APPROXIMATE(X, at) \
  X(at exp(d, x), std::exp(x)) \
  X(at exp2(d, x), std::exp2(x)) \
  X(at abs(d, x); MEET; at log(d, d), std::log(std::fabs(x))) \
  X(at abs(d, x); MEET; at log2(d, d), std::log2(std::fabs(x)))
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
const operation kOperations[] = {INDEXED(REFERENCE, ) EXACT(REFERENCE, ) APPROXIMATE(REFERENCE, )};
#define COUNT(call, expression) +1
constexpr int kIndexed = INDEXED(COUNT, ), kExact = kIndexed EXACT(COUNT, );

template <class S>
struct shared {
  S x, d;
  st<float, S::rows, S::cols, ducks::st_layout::naive> y;  // neither the layout of x, nor its type
  sv_fl<S::rows> u;
  typename S::row_vec v;
};
template <class S>
inline constexpr bool does_all = S::num_elements == kBase * kBase;

// in: x, y, a value per row, one per column; out: the result of each operation. Warps of 0: bare
// calls, of one warp.
#define MEET arch::sync_block()
#define RUN(call, expression)                     \
  {                                               \
    call;                                         \
    MEET;                                         \
    if (arch::warp_id() == 0) scatter(out, s->d); \
    out += S::num_elements;                       \
    MEET;                                         \
  }
template <int Warps, class S>
__global__ void run_all(const float* in, float* out) {
  auto* s = reinterpret_cast<shared<S>*>(arch::dynamic_shared());
  auto& [x, d, y, u, v] = *s;
  if (arch::warp_id() == 0) {
    gather(x, in);
    gather(y, in + S::num_elements);
    for (int i = arch::lane_id(); i < S::rows; i += kWarp) u.data[i] = in[2 * S::num_elements + i];
    for (int i = arch::lane_id(); i < S::cols; i += kWarp) {
      v.data[i] = convert<typename S::dtype>(in[2 * S::num_elements + S::rows + i]);
    }
  }
  MEET;
  if constexpr (Warps == 0) {
    INDEXED(RUN, )
    if constexpr (does_all<S>) {
      EXACT(RUN, )
      APPROXIMATE(RUN, )
    }
  } else {
    INDEXED(RUN, group<Warps>::)
  }
}

template <class S>
void check(const std::vector<float>& got, const std::vector<float>& in, const operation& op,
           double tolerance) {
  const int before = testing::failed_checks;
  testing::check_tile<S>(
      got,
      [&](int r, int c) {
        const float x = in[r * S::cols + c], y = in[S::num_elements + r * S::cols + c];
        const float u = in[2 * S::num_elements + r], v = in[2 * S::num_elements + S::rows + c];
        return testing::round_to<typename S::dtype>(op.want(x, y, u, v));
      },
      tolerance);
  if (testing::failed_checks != before) std::printf("  … in %s\n", op.name);
}

template <int Warps, class S>
void check_operations() {
  using T = typename S::dtype;
  std::vector<float> in = testing::random_tile<S>(1);
  for (const float value : testing::random_values(S::num_elements, 2)) in.push_back(value);
  for (const float value : testing::random_values(S::rows + S::cols, 3)) {
    in.push_back(testing::round_to<T>(value));
  }
  const int all = Warps == 0 && does_all<S> ? int(std::size(kOperations)) : kIndexed;
  const buffer<float> source(in), out(size_t(all) * S::num_elements);
  run(run_all<Warps, S>,
      {.grid = {1}, .block = {kWarp * (Warps == 0 ? 1 : Warps)}, .shared_bytes = sizeof(shared<S>)},
      source.data(), out.data());
  const std::vector<float> got = out.get();
  for (int i = 0; i < all; ++i) {
    const auto begin = got.begin() + i * S::num_elements;
    // Results are below 8. An approximation within a few units in the last place may round to the
    // neighbour.
    const double tolerance = i < kExact ? 0.0 : 8 * (4 * 0x1p-23 + 2 * testing::rounding<T>());
    check<S>({begin, begin + S::num_elements}, in, kOperations[i], tolerance);
  }
}

template <class T, int Rows, int Cols, class F>
void for_each_layout(F f) {
  f.template operator()<st<T, Rows, Cols, ducks::st_layout::swizzle>>();
  f.template operator()<st<T, Rows, Cols, ducks::st_layout::naive>>();
}

TEST(every_operation_by_one_warp) {
  testing::for_each_shared_tile([&]<class S>() { check_operations<0, S>(); });
}

// Groups that divide a tile evenly, and one that does not.
TEST(operations_by_groups) {
  for_each_layout<bf16, 64, 32>([&]<class S>() { check_operations<4, S>(); });
  for_each_layout<half, 32, 48>([&]<class S>() { check_operations<3, S>(); });
  for_each_layout<float, 16, 64>([&]<class S>() { check_operations<4, S>(); });
}

// ---- from every layout and type to every other

template <class D, class S>
__global__ void copies(const float* in, float* out) {
  auto& src = *reinterpret_cast<S*>(arch::dynamic_shared());
  auto& dst = *reinterpret_cast<D*>(arch::dynamic_shared() + (sizeof(S) + 1023) / 1024 * 1024);
  gather(src, in);
  copy(dst, src);
  scatter(out, dst);
}

template <class D, class S>
void check_copy() {
  std::vector<float> in = testing::random_tile<S>(4);
  in[0] = testing::round_to<typename S::dtype>(1.0f + 0x1p-8f);  // halfway, in bf16
  in[1] = -0.0f;
  in[2] = std::numeric_limits<float>::quiet_NaN();
  in[3] = -kInfinity;
  const auto got = testing::run_on_tile(copies<D, S>, in, S::num_elements, 32 * 1024);
  testing::check_tile<S>(
      got, [&](int r, int c) { return testing::round_to<typename D::dtype>(in[r * S::cols + c]); });
  CHECK(std::signbit(got[1]));
}

TEST(copy_changes_layout_and_type) {
  testing::for_each_dtype([&]<class To>() {
    testing::for_each_dtype([&]<class From>() {
      for_each_layout<From, 32, 48>(
          [&]<class S>() { for_each_layout<To, 32, 48>([&]<class D>() { check_copy<D, S>(); }); });
    });
  });
}

// ---- vectors, of any length

template <class V>
struct vectors {
  V x, d;
  sv_fl<V::length> y;
};

template <int Warps, class V>
__global__ void on_vectors(const float* in, float* out) {
  using T = typename V::dtype;
  using scope = group<Warps>;
  auto& [x, d, y] = *reinterpret_cast<vectors<V>*>(arch::dynamic_shared());
  for (int i = arch::thread_id(); i < V::length; i += arch::block_threads()) {
    x.data[i] = convert<T>(in[i]);
    y.data[i] = in[V::length + i];
  }
  MEET;
  const auto give = [&] {
    MEET;
    for (int i = arch::thread_id(); i < V::length; i += arch::block_threads()) {
      out[i] = convert<float>(d.data[i]);
    }
    out += V::length;
    MEET;
  };
  scope::add(d, x, y);
  give();
  scope::mul(d, x, 0.75f);
  give();
  scope::copy(d, y);
  give();
  scope::neg_infty(d);
  give();
  scope::right_fill(d, x, V::length / 3, 5.0f);
  give();
  scope::left_fill(d, x, V::length / 3, 5.0f);
  give();
  scope::copy(d, x);
  MEET;
  scope::abs(d, d);
  give();
  if (arch::warp_id() == 0) max(d, x, y);
  give();
}

template <int Warps, class V>
void check_vectors() {
  constexpr int kLength = V::length;
  using T = typename V::dtype;
  std::vector<float> in = testing::random_values(2 * kLength, 7);
  for (int i = 0; i < kLength; ++i) in[i] = testing::round_to<T>(in[i]);
  const buffer<float> source(in), out(size_t{8 * kLength});
  run(on_vectors<Warps, V>,
      {.grid = {1}, .block = {kWarp * Warps}, .shared_bytes = sizeof(vectors<V>)}, source.data(),
      out.data());
  const std::vector<float> got = out.get();
  for (int i = 0; i < kLength; ++i) {
    const float x = in[i], y = in[kLength + i];
    const bool right = i >= kLength / 3;
    const float want[] = {x + y,        0.75f * x,        y,
                          -kInfinity,   right ? 5.0f : x, right ? x : 5.0f,
                          std::fabs(x), std::fmax(x, y)};
    for (int k = 0; k < 8; ++k) {
      CHECK_EQUAL(got[k * kLength + i], testing::round_to<T>(want[k]));
    }
  }
}

TEST(vectors_of_any_length) {
  testing::for_each_dtype([&]<class T>() {
    check_vectors<1, sv<T, 16>>();
    check_vectors<1, sv<T, 77>>();
    check_vectors<4, sv<T, 64>>();
    check_vectors<4, sv<T, 300>>();
  });
}

// ---- register tiles and vectors in a group: each warp's part

__global__ void in_registers_of_a_group(const float* in, float* out) {
  rt_fl<16, 32> x;
  rt_fl<16, 32>::col_vec most;
  warpgroup::load(x, in, 32);
  warpgroup::add(x, x, 1.0f);
  warpgroup::row_max(most, x);
  warpgroup::sub_row(x, x, most);
  warpgroup::store(out, x, 32);
}

TEST(registers_of_a_group) {
  const std::vector<float> values = testing::random_tile<rt_fl<64, 32>>(8);
  const buffer<float> in(values), out(values.size());
  run(in_registers_of_a_group, {.grid = {1}, .block = {128}}, in.data(), out.data());
  const std::vector<float> got = out.get();
  for (int r = 0; r < 64; ++r) {
    float most = -kInfinity;
    for (int c = 0; c < 32; ++c) most = std::fmax(most, values[r * 32 + c] + 1.0f);
    for (int c = 0; c < 32; ++c) CHECK_EQUAL(got[r * 32 + c], values[r * 32 + c] + 1.0f - most);
  }
}

}  // namespace
