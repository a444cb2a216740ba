// types/fp8.cuh: all values of e4m3 as halves, and floats rounded to it.
#include "kittens/types/fp8.cuh"

#include <cmath>

#include "vectors.h"

using namespace kittens;
using testing::buffer;

namespace {

__global__ void read_all(float* low, float* high) {
  const int i = arch::thread_id();
  const int other = 255 - i;
  unpack<half>(low[i], high[other], halves_of(static_cast<uint16_t>(i | other << 8)));
}

// As the format says: 4 bits of exponent, of a bias of 7, without infinity.
float value_of(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 127) == 127 ? NAN : bits < 128 ? size : -size;
}

TEST(halves_hold_all_of_e4m3) {
  const buffer<float> low(256), high(256);
  testing::run(read_all, {.grid = {1}, .block = {256}}, low.data(), high.data());
  for (int i = 0; i < 256; ++i) {
    const float want = value_of(i);
    for (const float got : {low.get()[i], high.get()[i]}) {
      CHECK(got == want || (std::isnan(got) && std::isnan(want)));
    }
  }
}

__global__ void round_all(const float* in, float* out) {
  const int i = arch::thread_id();
  unpack<half>(out[2 * i], out[2 * i + 1], halves_of(pack_e4m3(in[2 * i], in[2 * i + 1])));
}

TEST(floats_round_to_the_nearest_of_e4m3) {
  const std::vector<float> in = {1.0f,   1.0625f, 1.1875f,  1.0626f,  -3.3f,     447.0f,
                                 464.0f, -1e30f,  INFINITY, 0x1p-10f, 0x1.8p-9f, 0x1.1p-10f};
  const std::vector<float> want = {1.0f,   1.0f,    1.25f,  1.125f, -3.25f,  448.0f,
                                   448.0f, -448.0f, 448.0f, 0.0f,   0x1p-8f, 0x1p-9f};
  const buffer<float> from(in), to(in.size());
  testing::run(round_all, {.grid = {1}, .block = {int(in.size()) / 2}}, from.data(), to.data());
  for (size_t i = 0; i < in.size(); ++i) CHECK_EQUAL(to.get()[i], want[i]);
}

// By integers and as CUDA does it, which is by the instructions where there are any.
__global__ void halves_both_ways(uint32_t* ours, uint32_t* cuda) {
  const int i = arch::block_x() * 256 + arch::thread_id();
  ours[i] = detail::halves_by_integers(static_cast<uint16_t>(i));
  const __half2_raw both = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(i), __NV_E4M3);
  cuda[i] = both.x | uint32_t{both.y} << 16;
}

bool is_nan(uint32_t half) { return (half & 0x7fff) > 0x7c00; }

TEST(integers_make_of_all_pairs_what_the_instructions_do) {
  constexpr int kPairs = 1 << 16;
  const buffer<uint32_t> ours(kPairs), cuda(kPairs);
  testing::run(halves_both_ways, {.grid = {256}, .block = {256}}, ours.data(), cuda.data());
  const std::vector<uint32_t> got = ours.get(), want = cuda.get();
  for (int i = 0; i < kPairs; ++i) {
    for (const int shift : {0, 16}) {
      const uint32_t a = got[i] >> shift & 0xffff, b = want[i] >> shift & 0xffff;
      CHECK(a == b || (is_nan(a) && is_nan(b)));
    }
  }
}

__global__ void round_both_ways(const float* in, uint32_t* ours, uint32_t* cuda) {
  const int i = arch::block_x() * 256 + arch::thread_id();
  ours[i] = detail::e4m3_by_integers(in[i]);
  cuda[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E4M3);
}

// Of each sign, exponent and 7 bits of mantissa, which is more than e4m3 has: the float itself, its
// neighbours and one between; so all ties of two neighbours, and what is beside them.
TEST(integers_round_all_exponents_as_the_instructions_do) {
  std::vector<float> in;
  for (uint32_t upper = 0; upper < 1u << 16; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x8000u, 0xffffu}) {
      in.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const int count = int(in.size());
  const buffer<float> from(in);
  const buffer<uint32_t> ours(count), cuda(count);
  testing::run(round_both_ways, {.grid = {count / 256}, .block = {256}}, from.data(), ours.data(),
               cuda.data());
  const std::vector<uint32_t> got = ours.get(), want = cuda.get();
  for (int i = 0; i < count; ++i) {
    CHECK(got[i] == want[i] || ((got[i] & want[i] & 0x7f) == 0x7f && std::isnan(in[i])));
  }
}

TEST(nan_stays) {
  const buffer<float> from(std::vector<float>{NAN, 1.0f}), to(2);
  testing::run(round_all, {.grid = {1}, .block = {1}}, from.data(), to.data());
  CHECK(std::isnan(to.get()[0]));
  CHECK_EQUAL(to.get()[1], 1.0f);
}

}  // namespace
