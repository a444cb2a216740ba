// arch/mma.cuh: which lane holds what, sums, special values.
#include <cmath>
#include <limits>
#include <random>

#include "harness.h"
#include "kittens/arch/mma.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/types/dtype.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kRows = 16, kColumns = 8, kDepth = 16;

// One product per warp. a: [warps][16][16], b: [warps][16][8], c and d: [warps][16][8].
template <class T>
__global__ void products(const T* a, const T* b, const float* c, float* d, bool in_place) {
  const int lane = arch::lane_id(), row = lane / 4, pair = lane % 4 * 2;
  a += arch::warp_id() * kRows * kDepth;
  b += arch::warp_id() * kDepth * kColumns;
  c += arch::warp_id() * kRows * kColumns;
  d += arch::warp_id() * kRows * kColumns;
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; ++i) {
    const T* from = a + (row + i % 2 * 8) * kDepth + pair + i / 2 * 8;
    left[i] = pack<T>(convert<float>(from[0]), convert<float>(from[1]));
  }
  for (int i = 0; i < 2; ++i) {
    const T* from = b + (pair + i * 8) * kColumns + row;
    right[i] = pack<T>(convert<float>(from[0]), convert<float>(from[kColumns]));
  }
  float sum[4], out[4];
  const auto at = [&](int i) { return (row + i / 2 * 8) * kColumns + pair + i % 2; };
  for (int i = 0; i < 4; ++i) sum[i] = c[at(i)];
  if (in_place) {
    arch::mma_m16n8k16<T>(sum, left, right, sum);
  } else {
    arch::mma_m16n8k16<T>(out, left, right, sum);
  }
  for (int i = 0; i < 4; ++i) d[at(i)] = in_place ? sum[i] : out[i];
}

template <class T>
std::vector<float> multiply(const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& c, bool in_place = false) {
  const auto narrow = [](const std::vector<float>& values) {
    std::vector<T> elements;
    for (const float x : values) elements.push_back(convert<T>(x));
    return elements;
  };
  const buffer<T> left(narrow(a)), right(narrow(b));
  const buffer<float> sum(c), out(c.size());
  const int warps = static_cast<int>(c.size()) / (kRows * kColumns);
  run(products<T>, {.grid = {1}, .block = {32 * warps}}, left.data(), right.data(), sum.data(),
      out.data(), in_place);
  return out.get();
}

std::vector<float> integers(int count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(generator() % 17) - 8);
  return values;
}

template <class T>
void check_exact(bool in_place) {
  constexpr int kWarps = 3;
  const std::vector<float> a = integers(kWarps * kRows * kDepth, 1);
  const std::vector<float> b = integers(kWarps * kDepth * kColumns, 2);
  const std::vector<float> c = integers(kWarps * kRows * kColumns, 3);
  const std::vector<float> got = multiply<T>(a, b, c, in_place);
  for (int at = 0; at < kWarps * kRows * kColumns; ++at) {
    const int row = at / kColumns, column = at % kColumns;  // rows of all warps
    float want = c[at];
    for (int k = 0; k < kDepth; ++k) {
      want += a[row * kDepth + k] * b[(row / kRows * kDepth + k) * kColumns + column];
    }
    CHECK_EQUAL(got[at], want);
  }
}

TEST(small_integers_are_exact) {
  check_exact<bf16>(false);
  check_exact<half>(false);
}

TEST(the_sum_may_be_the_result) {
  check_exact<bf16>(true);
  check_exact<half>(true);
}

template <class T>
void check_special_values(float tiny, float huge) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> a(kRows * kDepth, 0.0f), b(kDepth * kColumns, 1.0f);
  a[2 * kDepth + 3] = std::nanf("");
  a[4 * kDepth + 5] = infinity;
  a[6 * kDepth + 7] = tiny;
  b[7 * kColumns + 1] = huge;
  const std::vector<float> got = multiply<T>(a, b, std::vector<float>(kRows * kColumns, 0.0f));
  for (int column = 0; column < kColumns; ++column) {
    CHECK(std::isnan(got[2 * kColumns + column]));
    CHECK_EQUAL(got[4 * kColumns + column], infinity);
    CHECK_EQUAL(got[9 * kColumns + column], 0.0f);
  }
  CHECK_EQUAL(got[6 * kColumns + 1], tiny * huge);
}

TEST(special_values) {
  check_special_values<bf16>(0x1p-133f, 0x1p127f);
  check_special_values<half>(0x1p-24f, 0x1p15f);
}

}  // namespace
