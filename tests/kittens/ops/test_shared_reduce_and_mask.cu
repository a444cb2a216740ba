// ops/shared/reduce_and_mask.cuh: reductions and masks of shared tiles and vectors, by one warp and
// by groups.
#include <climits>
#include <cmath>

#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::gather;
using testing::run;
using testing::scatter;

namespace {

// ---- reductions

// clang-format off
#define REDUCTIONS(X, at) \
  X(row, at row_sum(of_rows, x), sum, x, 0) \
  X(row, at row_prod(of_rows, x), prod, x, 0) \
  X(row, at row_max(of_rows, x), max, x, 0) \
  X(row, at row_min(of_rows, x), min, x, 0) \
  X(row, at row_sum(of_rows, x, of_rows), sum, x, 1) \
  X(row, at row_max(of_rows, x, of_rows), max, x, 1) \
  X(col, at col_sum(of_cols, x), sum, x, 0) \
  X(col, at col_prod(of_cols, x), prod, x, 0) \
  X(col, at col_max(of_cols, x), max, x, 0) \
  X(col, at col_min(of_cols, x), min, x, 0) \
  X(col, at col_prod(of_cols, x, of_cols), prod, x, 1) \
  X(col, at col_min(of_cols, x, of_cols), min, x, 1)
// clang-format on

enum direction { row, col };
enum kind { sum, prod, max, min };
struct reduction {
  direction over;
  kind op;
  bool with_accum;
};
#define DESCRIBE(over, call, op, x, accum) reduction{over, kind::op, accum == 1},
const reduction kReductions[] = {REDUCTIONS(DESCRIBE, )};

constexpr float kAccum = 0.75f;  // in each element of the vectors, before

double apply(kind op, double a, double b) {
  switch (op) {
    case kind::sum: return a + b;
    case kind::prod: return a * b;
    case kind::max: return std::fmax(a, b);
    default: return std::fmin(a, b);
  }
}

template <class S>
struct operands {
  S x;
  sv_fl<S::rows> of_rows;  // not of the tile's type
  typename S::row_vec of_cols;
};

template <class V>
KITTENS_DEVICE void give(float*& out, const V& v) {
  arch::sync_block();
  for (int i = arch::thread_id(); i < V::length; i += arch::block_threads()) {
    out[i] = convert<float>(v.data[i]);
  }
  out += V::length;
  arch::sync_block();
}

// Warps of 0: bare calls, of one warp.
#define REDUCE(over, call, op, x, accum)                                     \
  {                                                                          \
    for (int i = arch::thread_id(); i < S::rows; i += arch::block_threads()) \
      of_rows.data[i] = kAccum;                                              \
    for (int i = arch::thread_id(); i < S::cols; i += arch::block_threads()) \
      of_cols.data[i] = convert<typename S::dtype>(kAccum);                  \
    arch::sync_block();                                                      \
    kittens::call;                                                           \
    if constexpr (direction::over == direction::row) {                       \
      give(out, of_rows);                                                    \
    } else {                                                                 \
      give(out, of_cols);                                                    \
    }                                                                        \
  }
template <int Warps, class S>
__global__ void reduce_all(const float* in, float* out) {
  auto& [x, of_rows, of_cols] = *reinterpret_cast<operands<S>*>(arch::dynamic_shared());
  if (arch::warp_id() == 0) gather(x, in);
  arch::sync_block();
  if constexpr (Warps == 0) {
    REDUCTIONS(REDUCE, )
  } else {
    REDUCTIONS(REDUCE, group<Warps>::)
  }
}

template <int Warps, class S>
void check_reductions() {
  const std::vector<float> in = testing::random_tile<S>(11);
  const buffer<float> source(in), out(size_t{6 * (S::rows + S::cols)});
  run(reduce_all<Warps, S>,
      {.grid = {1},
       .block = {kWarp * (Warps == 0 ? 1 : Warps)},
       .shared_bytes = sizeof(operands<S>)},
      source.data(), out.data());
  const std::vector<float> got = out.get();
  size_t at = 0;
  for (const reduction& r : kReductions) {
    const int lines = r.over == row ? S::rows : S::cols, length = r.over == row ? S::cols : S::rows;
    const int across = r.over == row ? S::cols : 1, along = r.over == row ? 1 : S::cols;
    for (int i = 0; i < lines; ++i) {
      double want = in[i * across], magnitude = std::fabs(want);
      for (int k = 1; k < length; ++k) {
        const double x = in[i * across + k * along];
        want = apply(r.op, want, x);
        magnitude = r.op == kind::sum ? magnitude + std::fabs(x) : std::fabs(want);
      }
      if (r.with_accum) want = apply(r.op, kAccum, want);
      // `length` roundings of partial results in float, and one of the result, if it is no float.
      const double once = r.over == row ? 0 : testing::rounding<typename S::dtype>();
      const bool is_exact = r.op == kind::max || r.op == kind::min;
      const double tolerance =
          is_exact ? 0 : (length + 1) * 0x1p-24 * (magnitude + kAccum) + once * std::fabs(want);
      const double smallest = std::is_same_v<typename S::dtype, half> ? 0x1p-25 : 0;  // subnormal
      CHECK_CLOSE(got[at], want, tolerance + (is_exact ? 0 : smallest));
      ++at;
    }
  }
}

TEST(reductions_by_one_warp) {
  testing::for_each_shared_tile([&]<class S>() { check_reductions<0, S>(); });
}

TEST(reductions_by_groups) {
  check_reductions<4, st_bf<64, 32>>();
  check_reductions<4, st_fl<32, 48>>();
  check_reductions<3, st_hf<32, 48, ducks::st_layout::naive>>();
  check_reductions<8, st_bf<16, 64>>();
  check_reductions<4, st_bf<64, 80, ducks::st_layout::swizzle_128>>();
}

// The order of a reduction does not depend on who does it.
TEST(groups_give_the_bits_of_one_warp) {
  using S = st_fl<64, 64>;
  const buffer<float> in(testing::random_tile<S>(12));
  std::vector<float> got[2];
  for (const bool is_group : {false, true}) {
    const buffer<float> out(size_t{6 * (S::rows + S::cols)});
    run(is_group ? reduce_all<4, S> : reduce_all<0, S>,
        {.grid = {1}, .block = {is_group ? 128 : 32}, .shared_bytes = sizeof(operands<S>)},
        in.data(), out.data());
    got[is_group] = out.get();
  }
  CHECK(got[0] == got[1]);
}

// ---- vectors to numbers, the same in every lane

template <class V>
__global__ void of_vectors(const float* in, float* out) {
  auto* v = reinterpret_cast<V*>(arch::dynamic_shared());
  for (int k = 0; k < 2; ++k) {
    for (int i = arch::thread_id(); i < V::length; i += arch::block_threads()) {
      v[k].data[i] = convert<typename V::dtype>(in[k * V::length + i]);
    }
  }
  arch::sync_block();
  float numbers[7];
  kittens::sum(numbers[0], v[0]);
  kittens::sum(numbers[1], v[0], 10.0f);
  kittens::max(numbers[2], v[0]);
  warpgroup::min(numbers[3], v[0]);
  warpgroup::max(numbers[4], v[0], 100.0f);
  dot(numbers[5], v[0], v[1]);
  numbers[6] = reduce([](float a, float b) { return fmaxf(fabsf(a), fabsf(b)); }, v[0]);
  for (int k = 0; k < 7; ++k) out[7 * arch::thread_id() + k] = numbers[k];
}

template <class V>
void check_vector_reductions() {
  constexpr int kLength = V::length, kThreads = 128;
  const std::vector<float> in = testing::exact_tile<st_fl<16, 64>>();  // sums of these are exact
  const buffer<float> source(in), out(size_t{7 * kThreads});
  run(of_vectors<V>, {.grid = {1}, .block = {kThreads}, .shared_bytes = 2 * sizeof(V)},
      source.data(), out.data());
  double want[7] = {0, 10, -1000, 1000, 100, 0, 0};
  for (int i = 0; i < kLength; ++i) {
    want[0] += in[i];
    want[1] += in[i];
    want[2] = std::fmax(want[2], in[i]);
    want[3] = std::fmin(want[3], in[i]);
    want[4] = std::fmax(want[4], in[i]);
    want[5] += double{in[i]} * in[kLength + i];
    want[6] = std::fmax(want[6], kLength == 1 ? in[i] : std::fabs(in[i]));
  }
  const std::vector<float> got = out.get();
  for (int i = 0; i < 7 * kThreads; ++i) CHECK_EQUAL(got[i], want[i % 7]);
}

TEST(vectors_to_numbers) {
  testing::for_each_dtype([&]<class T>() {
    check_vector_reductions<sv<T, 2>>();
    check_vector_reductions<sv<T, 16>>();
    check_vector_reductions<sv<T, 31>>();
    check_vector_reductions<sv<T, 100>>();
    check_vector_reductions<sv<T, 256>>();
  });
}

// ---- masks

constexpr float kFill = -7.5f;
enum { kTril, kTriu, kRight, kLeft, kLower, kUpper, kMasks };

bool replaced(int mask, int r, int c, int64_t cut) {
  const bool all[kMasks] = {c > r + cut, c < r + cut, c >= cut, c < cut, r >= cut, r < cut};
  return all[mask];
}

#define MASKS(X, at) \
  X(at tril) X(at triu) X(at right_fill) X(at left_fill) X(at lower_fill) X(at upper_fill)

// Warps of 0: bare calls, of one warp.
#define MASK(name)                               \
  {                                              \
    kittens::name(dst, src, cut, kFill);         \
    arch::sync_block();                          \
    if (arch::warp_id() == 0) scatter(out, dst); \
    out += S::num_elements;                      \
    arch::sync_block();                          \
  }
template <int Warps, class S>
__global__ void mask_shared(const float* in, float* out, int cut) {
  auto& src = *reinterpret_cast<S*>(arch::dynamic_shared());
  auto& dst = *(&src + 1);
  if (arch::warp_id() == 0) gather(src, in);
  arch::sync_block();
  if constexpr (Warps == 0) {
    MASKS(MASK, )
  } else {
    MASKS(MASK, group<Warps>::)
  }
}
#undef MASK

// A register tile of each warp, which is its part of the group's.
#define MASK(name)                                         \
  {                                                        \
    R dst = src;                                           \
    kittens::name(dst, dst, cut, kFill);                   \
    scatter(out + arch::warp_id() * R::num_elements, dst); \
    out += Warps * R::num_elements;                        \
  }
template <int Warps, class R>
__global__ void mask_registers(const float* in, float* out, int cut) {
  R src;
  gather(src, in + arch::warp_id() * R::num_elements);
  MASKS(MASK, group<Warps>::)
}

template <class S>
void check_masks(void (*kernel)(const float*, float*, int), int threads, int cut) {
  const std::vector<float> in = testing::exact_tile<S>();
  const buffer<float> source(in), out(size_t{kMasks * S::num_elements});
  run(kernel, {.grid = {1}, .block = {threads}, .shared_bytes = 2 * sizeof(S)}, source.data(),
      out.data(), cut);
  const std::vector<float> all = out.get();
  for (int mask = 0; mask < kMasks; ++mask) {
    const auto begin = all.begin() + mask * S::num_elements;
    testing::check_tile<S>({begin, begin + S::num_elements}, [&](int r, int c) {
      return replaced(mask, r, c, cut) ? kFill : in[r * S::cols + c];
    });
  }
}

TEST(masks_cut_anywhere) {
  for (const int cut : {INT_MIN, -70, -64, -17, -1, 0, 1, 15, 16, 40, 63, 64, 100, INT_MAX}) {
    check_masks<st_bf<64, 32>>(mask_shared<0, st_bf<64, 32>>, 32, cut);
    check_masks<st_fl<64, 32>>(mask_shared<4, st_fl<64, 32>>, 128, cut);
    check_masks<st_fl<64, 32>>(mask_registers<4, rt_fl<16, 32>>, 128, cut);
    check_masks<st_fl<64, 64>>(mask_registers<2, rt_bf<32, 64>>, 64, cut);
  }
}

__global__ void causal(const float* in, float* out) {
  auto& tile = *reinterpret_cast<st_bf<64, 64>*>(arch::dynamic_shared());
  if (arch::warp_id() == 0) gather(tile, in);
  arch::sync_block();
  warpgroup::make_causal(tile, tile, -kInfinity);
  arch::sync_block();
  if (arch::warp_id() == 0) scatter(out, tile);
  rt_fl<16, 64> rows;
  gather(rows, in + arch::warp_id() * 16 * 64);
  warpgroup::make_causal(rows, rows, -kInfinity);
  scatter(out + 64 * 64 + arch::warp_id() * 16 * 64, rows);
}

TEST(make_causal_of_a_group) {
  using S = st_bf<64, 64>;
  const std::vector<float> in = testing::exact_tile<S>();
  const buffer<float> source(in), out(size_t{2 * S::num_elements});
  run(causal, {.grid = {1}, .block = {128}, .shared_bytes = sizeof(S)}, source.data(), out.data());
  const std::vector<float> both = out.get();
  const auto middle = both.begin() + S::num_elements;
  const auto want = [&](int r, int c) { return c > r ? -kInfinity : in[r * S::cols + c]; };
  testing::check_tile<S>({both.begin(), middle}, want);
  testing::check_tile<S>({middle, both.end()}, want);
}

}  // namespace
