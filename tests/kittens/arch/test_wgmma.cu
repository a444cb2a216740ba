// arch/wgmma.cuh: rounding, special values, groups under way together. (Every width and layout:
// test_wgmma_bf16.cu, test_wgmma_half.cu.)
#include <cmath>
#include <limits>

#include "kittens/types/dtype.cuh"
#include "wgmma_cases.h"

using namespace kittens;
using namespace kittens::testing;
using arch::major;

namespace {

constexpr int kWidth = 64;

template <class T>
std::vector<float> multiply_shared(const std::vector<float>& a, const std::vector<float>& b,
                                   const std::vector<float>& c = {}) {
  return multiply<T>(make_product<T, kWidth, false, major::k, major::k>(), a, b, c, 128, 128);
}

// Values that T holds, so that only the products' sums are rounded.
template <class T>
std::vector<float> random_elements(int count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(T(normal(generator))));
  return values;
}

template <class T>
void check_random_values() {
  const std::vector<float> a = random_elements<T>(kRows * kDepth, 1);
  const std::vector<float> b = random_elements<T>(kWidth * kDepth, 2);
  const std::vector<float> c = random_elements<float>(kRows * kWidth, 3);
  const std::vector<float> got = multiply_shared<T>(a, b, c);
  const std::vector<double> want = reference(a, b, c, kWidth);
  for (int at = 0; at < kRows * kWidth; ++at) {
    // Each addition may cut off what is below 2^-22 of the largest number in it, which the sum of
    // the magnitudes bounds. (Tensor cores do not round to nearest.)
    double magnitude = std::fabs(c[at]);
    for (int k = 0; k < kDepth; ++k) {
      magnitude += std::fabs(a[at / kWidth * kDepth + k] * b[at % kWidth * kDepth + k]);
    }
    CHECK_CLOSE(got[at], want[at], kDepth * magnitude * 0x1p-22);
  }
}

TEST(sums_are_those_of_floats) {
  check_random_values<bf16>();
  check_random_values<half>();
}

template <class T>
void check_special_values() {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float tiny = std::is_same_v<T, half> ? 0x1p-24f : 0x1p-133f;  // the least of T
  const float huge = std::is_same_v<T, half> ? 0x1p15f : 0x1p127f;
  std::vector<float> a(kRows * kDepth, 1.0f), b(kWidth * kDepth, 1.0f);
  a[3 * kDepth + 5] = nan;
  a[10 * kDepth + 17] = infinity;
  a[33 * kDepth + 63] = -infinity;
  b[7 * kDepth + 17] = 0;  // with the infinity: NaN
  for (int k = 0; k < kDepth; ++k) a[50 * kDepth + k] = k == 9 ? tiny : 0.0f;
  b[20 * kDepth + 9] = huge;
  const std::vector<float> got = multiply_shared<T>(a, b);
  for (int column = 0; column < kWidth; ++column) {
    CHECK(std::isnan(got[3 * kWidth + column]));
    CHECK(column == 7 ? std::isnan(got[10 * kWidth + column])
                      : got[10 * kWidth + column] == infinity);
    CHECK_EQUAL(got[33 * kWidth + column], -infinity);
  }
  CHECK_EQUAL(got[50 * kWidth + 20], tiny * huge);  // subnormal inputs count
  CHECK_EQUAL(got[kWidth + 1], kDepth);
}

TEST(special_values) {
  check_special_values<bf16>();
  check_special_values<half>();
}

TEST(sums_are_not_rounded_to_the_inputs_type) {
  const std::vector<float> a(kRows * kDepth, 1.0f), b(kWidth * kDepth, 1.0f);
  const std::vector<float> c(kRows * kWidth, 0x1p20f);
  for (const float x : multiply_shared<bf16>(a, b, c)) CHECK_EQUAL(x, 0x1p20f + kDepth);
}

// The second product, of the same operands, adds to the first or replaces it.
__global__ void __launch_bounds__(kWarpgroup) twice(float* out, bool adds) {
  auto* const shared = reinterpret_cast<uint32_t*>(arch::dynamic_shared());
  for (int i = arch::thread_id(); i < 2048; i += kWarpgroup) shared[i] = 0x3f803f80;  // ones
  arch::fence_async_proxy();
  arch::sync_block();
  float d[4];
  const uint64_t ones = arch::matrix_descriptor(arch::shared_address(shared), 128, 256, 0);
  arch::wgmma_fence();
  arch::wgmma<bf16, 8>(d, ones, ones, false);
  arch::wgmma<bf16, 8>(d, ones, ones, adds);
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
  arch::wgmma_hold(d);
  for (int i = 0; i < 4; ++i) out[arch::thread_id() * 4 + i] = d[i];
}

TEST(whether_to_add_is_known_at_run_time) {
  for (const bool adds : {false, true}) {
    const buffer<float> out(4 * kWarpgroup);
    run(twice, {.grid = {1}, .block = {kWarpgroup}, .shared_bytes = 8192}, out.data(), adds);
    for (const float x : out.get()) CHECK_EQUAL(x, adds ? 32 : 16);
  }
}

// ---- groups: o = Σ (q·kᵀ)·v over tiles of 64 keys, as attention computes it, in two warpgroups

constexpr int kTileBytes = 64 * 64 * 2;  // of every operand

KITTENS_DEVICE uint64_t tile_descriptor(const uint8_t* tile, int offset, bool mn_major) {
  return arch::matrix_descriptor(arch::shared_address(tile) + offset, mn_major ? kTileBytes : 16,
                                 1024, 128);
}

// s = q·kᵀ: both K-major.
KITTENS_DEVICE void start_scores(float (&s)[32], const uint8_t* q, const uint8_t* k) {
  arch::wgmma_hold(s);
  arch::wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < 4; ++slice) {
    arch::wgmma<bf16, 64>(s, tile_descriptor(q, slice * 32, false),
                          tile_descriptor(k, slice * 32, false), slice != 0);
  }
  arch::wgmma_commit();
}

// o += p·v: p from registers, v MN-major.
KITTENS_DEVICE void start_output(float (&o)[32], uint32_t (&p)[4][4], const uint8_t* v) {
  arch::wgmma_hold(o, p);
  arch::wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < 4; ++slice) {
    arch::wgmma<bf16, 64, major::mn>(o, p[slice], tile_descriptor(v, slice * 2048, true), true);
  }
  arch::wgmma_commit();
}

KITTENS_DEVICE void pack_scores(uint32_t (&p)[4][4], const float (&s)[32]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) p[i / 4][i % 4] = pack<bf16>(s[2 * i], s[2 * i + 1]);
}

// image: q of each warpgroup, then k and v of each tile. The scores of the next tile are under way
// together with the output of this one.
__global__ void __launch_bounds__(2 * kWarpgroup)
    overlapped(const uint32_t* image, float* out, int tiles) {
  const int thread = arch::thread_id(), warpgroup = thread / kWarpgroup;
  uint8_t* const shared = arch::dynamic_shared();
  for (int i = thread; i < (2 + 2 * tiles) * kTileBytes / 4; i += 2 * kWarpgroup) {
    reinterpret_cast<uint32_t*>(shared)[i] = image[i];
  }
  arch::fence_async_proxy();
  arch::sync_block();
  const uint8_t* const q = shared + warpgroup * kTileBytes;
  const uint8_t* const tile = shared + 2 * kTileBytes;
  float s[32], o[32] = {};
  uint32_t p[4][4];
  start_scores(s, q, tile);
  arch::wgmma_wait<0>();
  arch::wgmma_hold(s);
  pack_scores(p, s);
#pragma unroll 1
  for (int i = 0; i + 1 < tiles; ++i) {
    start_scores(s, q, tile + 2 * (i + 1) * kTileBytes);
    start_output(o, p, tile + (2 * i + 1) * kTileBytes);
    arch::wgmma_wait<1>();
    arch::wgmma_hold(s);
#pragma unroll
    for (float& x : s) x *= 0.5f;  // while the output is under way
    arch::wgmma_wait<0>();
    arch::wgmma_hold(o, p);
    pack_scores(p, s);
  }
  start_output(o, p, tile + (2 * tiles - 1) * kTileBytes);
  arch::wgmma_wait<0>();
  arch::wgmma_hold(o);
#pragma unroll
  for (int i = 0; i < 32; ++i) out[(warpgroup * 32 + i) * kWarpgroup + thread % kWarpgroup] = o[i];
}

// Scores up to ±32, halves of which bf16 holds exactly.
std::vector<float> signs(int seed) {
  std::vector<float> values = small_integers(64 * 64, static_cast<unsigned>(seed));
  for (float& x : values) x = x > 1 ? 1.0f : x < -1 ? -1.0f : 0.0f;
  return values;
}

void put(std::vector<uint32_t>& image, const std::vector<float>& values, bool transposed) {
  const layout at{transposed, 128, 64};
  const size_t begin = image.size();
  image.resize(begin + kTileBytes / 4);
  for (int i = 0; i < 64 * 64; ++i) {
    const bf16 x(values[i]);
    const int offset = transposed ? at.offset(i % 64, i / 64) : at.offset(i / 64, i % 64);
    std::memcpy(reinterpret_cast<char*>(image.data() + begin) + offset, &x, sizeof x);
  }
}

void check_overlapped(int tiles) {
  std::vector<std::vector<float>> q, k, v;
  std::vector<uint32_t> image;
  for (int i = 0; i < 2; ++i) put(image, q.emplace_back(signs(i)), false);
  for (int i = 0; i < tiles; ++i) {
    put(image, k.emplace_back(signs(10 + i)), false);
    put(image, v.emplace_back(signs(20 + i)), true);
  }
  const buffer<uint32_t> in(image);
  const buffer<float> out(2 * 64 * 64);
  run(overlapped,
      {.grid = {1}, .block = {2 * kWarpgroup}, .shared_bytes = static_cast<int>(image.size() * 4)},
      in.data(), out.data(), tiles);
  const std::vector<float> got = out.get();
  for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
    std::vector<double> want(64 * 64);
    for (int i = 0; i < tiles; ++i) {
      std::vector<float> v_transposed(64 * 64), s;
      for (int at = 0; at < 64 * 64; ++at) v_transposed[at % 64 * 64 + at / 64] = v[i][at];
      for (const double x : reference(q[warpgroup], k[i], {}, 64)) {
        s.push_back(static_cast<float>(i == 0 ? x : x / 2));
      }
      const std::vector<double> o = reference(s, v_transposed, {}, 64);
      for (int at = 0; at < 64 * 64; ++at) want[at] += o[at];
    }
    for (int at = 0; at < 64 * 64; ++at) {
      CHECK_EQUAL(got[warpgroup * 64 * 64 + accumulator_at(at / 64, at % 64)], want[at]);
    }
  }
}

TEST(two_groups_under_way_in_two_warpgroups) {
  check_overlapped(1);
  check_overlapped(2);
  check_overlapped(5);
}

// ---- descriptors

TEST(descriptors) {
  const auto encode = arch::detail::encode_matrix;
  CHECK_EQUAL(encode(1024, 16, 1024, 128), 0x40 | 1ull << 16 | 64ull << 32 | 1ull << 62);
  CHECK_EQUAL(encode(0x38400, 8192, 256, 64), 0x3840 | 512ull << 16 | 16ull << 32 | 2ull << 62);
  CHECK_EQUAL(encode(32, 128, 256, 32), 2 | 8ull << 16 | 16ull << 32 | 3ull << 62);
  CHECK_EQUAL(encode(0, 128, 256, 0), 8ull << 16 | 16ull << 32);
}

}  // namespace
