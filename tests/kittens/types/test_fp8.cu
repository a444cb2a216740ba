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

TEST(nan_stays) {
  const buffer<float> from(std::vector<float>{NAN, 1.0f}), to(2);
  testing::run(round_all, {.grid = {1}, .block = {1}}, from.data(), to.data());
  CHECK(std::isnan(to.get()[0]));
  CHECK_EQUAL(to.get()[1], 1.0f);
}

}  // namespace
