// arch/pair_math.cuh: bit by bit, against sums that double has exactly, and at the edges.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "pair_cases.h"

using kittens::testing::fma_pairs;

namespace {

double value_of(uint32_t half) { return std::bit_cast<float>(half << 16); }

// A double as the nearest bf16, of which 8 bits of the significand are kept, and none below 2⁻¹³³.
double rounded(double x) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - 8, -133);
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

uint32_t fma_of(uint32_t a, uint32_t b, uint32_t c) { return fma_pairs({a}, {b}, {c})[0]; }

TEST(each_half_is_rounded_once) {
  std::mt19937 random(1);
  const auto half = [&](int least, int most) {  // sign, exponent, fraction
    const uint32_t exponent = 127 + least + int(random() % uint32_t(most - least + 1));
    return (random() & 1) << 15 | exponent << 7 | (random() & 0x7f);
  };
  std::vector<uint32_t> a, b, c;
  for (int i = 0; i < 4000; ++i) {
    // Sums of a product of 16 bits and an addend at most 20 places away: double has them exactly.
    a.push_back(half(-10, 10) | half(-68, -60) << 16);  // the upper halves become subnormal
    b.push_back(half(-3, 3) | half(-68, -60) << 16);
    c.push_back(half(-10, 10) | half(-126, -118) << 16);
  }
  const std::vector<uint32_t> got = fma_pairs(a, b, c);
  for (size_t i = 0; i < got.size(); ++i) {
    for (const int shift : {0, 16}) {
      const auto part = [&](uint32_t word) { return value_of(word >> shift & 0xffff); };
      CHECK_EQUAL(part(got[i]), rounded(part(a[i]) * part(b[i]) + part(c[i])));
    }
  }
}

TEST(a_tie_goes_to_even_and_what_is_little_more_does_not) {
  const uint32_t one = 0x3f80, half_unit = 0x3b80, next = 0x3f81;  // 1, 2⁻⁸, 1 + 2⁻⁷
  CHECK_EQUAL(fma_of(one, half_unit, one), one);
  CHECK_EQUAL(fma_of(one, half_unit, next), 0x3f82u);
  // (1 + 2⁻⁷)(1 + 2⁻¹) = 1.5 + 1.5 · 2⁻⁷ is a tie, and what is added decides, however little.
  const uint32_t tiny = 7 << 7;  // 2⁻¹²⁰
  CHECK_EQUAL(fma_of(next, 0x3fc0, 0), 0x3fc2u);
  CHECK_EQUAL(fma_of(next, 0x3fc0, tiny), 0x3fc2u);
  CHECK_EQUAL(fma_of(next, 0x3fc0, tiny | 0x8000), 0x3fc1u);
}

TEST(ends_of_the_range) {
  const uint32_t infinity = 0x7f80, largest = 0x7f7f, smallest = 1;
  CHECK_EQUAL(fma_of(largest, 0x4000, 0), infinity);
  CHECK_EQUAL(fma_of(largest, 0x3f80, 0), largest);
  CHECK_EQUAL(fma_of(largest, 0xc000, 0), infinity | 0x8000);
  CHECK_EQUAL(fma_of(smallest, 0x3f80, 0), smallest);
  CHECK_EQUAL(fma_of(smallest, 0x3f00, 0), 0u);  // half of it: a tie, to even
  CHECK_EQUAL(fma_of(infinity, 0x3f80, 0), infinity);
  CHECK(std::isnan(value_of(fma_of(infinity, 0, 0))));
  CHECK(std::isnan(value_of(fma_of(infinity, 0x3f80, infinity | 0x8000))));
}

}  // namespace
