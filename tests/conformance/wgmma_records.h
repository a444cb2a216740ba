// wgmma for one type of element: every swizzle and order of the operands at some widths, every
// width once, sums that are rounded, and numbers at the edges of the format.
#pragma once

#include <cmath>
#include <limits>

#include "arch/wgmma_cases.h"
#include "record.h"

namespace kittens::testing {

template <class T>
inline const std::string element_name = recorded_type<T>;

inline std::string form(const product_kernel& how) {
  const auto order = [](bool mn_major) { return mn_major ? "mn" : "k"; };
  return std::string(how.register_a ? "registers" : order(how.a_mn_major)) + "_" +
         order(how.b_mn_major) + ".n" + to_text(how.width);
}

constexpr int kSwizzles[] = {0, 32, 64, 128};

// Small integers: the same bits, whatever the order of the sums.
template <class T>
void record_exact(const product_kernel& how, int a_swizzle, int b_swizzle, bool adds) {
  const int n = how.width;
  const std::vector<float> a = small_integers(kRows * kDepth, n), b = small_integers(n * kDepth, 1);
  const std::vector<float> c = adds ? small_integers(kRows * n, 2) : std::vector<float>();
  record("wgmma." + element_name<T> + "." + form(how) + ".swizzle_" +
             (how.register_a ? "" : to_text(a_swizzle) + "_") + to_text(b_swizzle),
         multiply<T>(how, a, b, c, a_swizzle, b_swizzle));
}

template <class T>
void record_every_swizzle(const product_kernel& how) {
  for (const int a_swizzle : kSwizzles) {
    if (how.register_a && a_swizzle != 0) continue;
    for (const int b_swizzle : kSwizzles) {
      record_exact<T>(how, a_swizzle, b_swizzle, (a_swizzle + b_swizzle) % 3 == 0);
    }
  }
}

// The six forms of one width.
template <class T, int N>
std::vector<product_kernel> forms() {
  using arch::major;
  return {make_product<T, N, false, major::k, major::k>(),
          make_product<T, N, false, major::k, major::mn>(),
          make_product<T, N, false, major::mn, major::k>(),
          make_product<T, N, false, major::mn, major::mn>(),
          make_product<T, N, true, major::k, major::k>(),
          make_product<T, N, true, major::k, major::mn>()};
}

template <class T>
void record_forms() {
  for (const auto& how : forms<T, 8>()) record_every_swizzle<T>(how);
  for (const auto& how : forms<T, 64>()) record_every_swizzle<T>(how);
  for (const auto& how : forms<T, 96>()) record_every_swizzle<T>(how);
  for (const auto& how : forms<T, 256>()) record_every_swizzle<T>(how);
}

// Every width: b one way round for one, the other way round for the next.
template <class T>
void record_widths() {
  using arch::major;
  [&]<int... I>(std::integer_sequence<int, I...>) {
    constexpr bool kHalf = std::is_same_v<T, __half>;
    for (const product_kernel& how :
         {make_product<T, 8 * (I + 1), I / 2 % 2 == 1, major::k,
                       (I % 2 == 0) == kHalf ? major::mn : major::k>()...}) {
      const bool taken = how.width == 8 || how.width == 64 || how.width == 96 || how.width == 256;
      if (!taken) record_exact<T>(how, 128, kSwizzles[how.width / 8 % 4], how.width % 3 == 0);
    }
  }(std::make_integer_sequence<int, 32>());
}

template <class T>
void record_rounded() {
  constexpr int kWidth = 64;
  const std::vector<float> a = widen(narrow<T>(random_values(kRows * kDepth, 5)));
  const std::vector<float> b = widen(narrow<T>(random_values(kWidth * kDepth, 6)));
  const std::vector<float> c = random_values(kRows * kWidth, 7);
  const auto magnitudes = [](std::vector<float> values) {
    for (float& x : values) x = std::fabs(x);
    return values;
  };
  double most = 0;
  for (const double x : reference(magnitudes(a), magnitudes(b), magnitudes(c), kWidth)) {
    most = std::max(most, x);
  }
  for (const product_kernel& how : forms<T, kWidth>()) {
    record("wgmma." + element_name<T> + "." + form(how) + ".rounded",
           every(13, multiply<T>(how, a, b, c, 128, 128)), within_products(kSlices, most));
  }
}

// Column 0 of a product of width 8 with b all `factor` in its first 16 rows, and 0 below them.
template <class T>
std::vector<float> multiply_rows(const std::vector<float>& a, float factor, float c) {
  std::vector<float> b(8 * kDepth, 0.0f);
  for (int i = 0; i < 8 * kDepth; ++i) {
    if (i % kDepth < 16) b[i] = factor;
  }
  const std::vector<float> sums(kRows * 8, c);
  using arch::major;
  return every(8, multiply<T>(make_product<T, 8, false, major::k, major::k>(), a, b, sums, 0, 0));
}

// 1 + (row % 16 + 1)·2^-27, by one product (rows 0 …), by 16 (16 …); with a minus (32 …), (48 …).
// What is here shows where the hardware cuts its addends and its sums off.
template <class T>
void record_truncation() {
  std::vector<float> a(kRows * kDepth, 0.0f);
  for (int row = 0; row < kRows; ++row) {
    const float x = std::ldexp(static_cast<float>(row % 16 + 1), -14) * (row < 32 ? 1.0f : -1.0f);
    for (int k = 0; k < (row / 16 % 2 == 0 ? 1 : 16); ++k) a[row * kDepth + k] = x;
  }
  record("wgmma." + element_name<T> + ".truncation", multiply_rows<T>(a, 0x1p-13f, 1.0f),
         within_products(kSlices, 1 + 16 * 16 * 0x1p-27));
}

// Two numbers in each row.
template <class T>
void record_special(const std::string& name, const std::vector<std::pair<float, float>>& rows,
                    float factor, float c) {
  std::vector<float> a(kRows * kDepth, 0.0f);
  for (size_t row = 0; row < rows.size(); ++row) {
    a[row * kDepth] = rows[row].first;
    a[row * kDepth + 5] = rows[row].second;
  }
  record("wgmma." + element_name<T> + "." + name, multiply_rows<T>(a, factor, c), same_values());
}

template <class T>
void record_specials() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr bool kHalf = std::is_same_v<T, __half>;
  const float largest = kHalf ? 65504.0f : 0x1.fep127f, tiny = kHalf ? 0x1p-24f : 0x1p-133f;
  record_special<T>("infinities_and_nans",
                    {{nan, 1},
                     {kInfinity, 1},
                     {-kInfinity, 1},
                     {kInfinity, -kInfinity},
                     {kInfinity, kInfinity},
                     {nan, kInfinity},
                     {0, 0},
                     {-0.0f, 0}},
                    1.0f, 0.0f);
  record_special<T>("infinity_times_zero", {{1, 0}, {0, 1}, {-1, 2}}, kInfinity, 0.0f);
  record_special<T>("largest", {{largest, 0}, {largest, largest}, {-largest, -largest}},
                    kHalf ? 1.0f : 0x1p-1f, 0.0f);
  record_special<T>("overflow", {{largest, 0}, {-largest, 0}}, largest, 0.0f);
  record_special<T>("subnormal_elements", {{tiny, 0}, {-tiny, 0}, {3 * tiny, 0}, {tiny, tiny}},
                    kHalf ? 1.0f : 0x1p60f, 0.0f);
}

// For bf16 alone, whose products reach below 2^-126.
inline void record_subnormal_sums() {
  record_special<__nv_bfloat16>("subnormal_sums",
                                {{0x1p-120f, 0}, {-0x1p-120f, 0}, {0x1p-126f, 0}, {0x1.8p-120f, 0}},
                                0x1p-10f, 0.0f);
  record_special<__nv_bfloat16>("subnormal_addend", {{0, 0}, {0x1p-120f, 0}}, 1.0f, 0x1p-130f);
}

}  // namespace kittens::testing
