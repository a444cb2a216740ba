// What the hardware answers, to be kept: a program of this folder launches small kernels, each
// around one function of the seam, and records what they wrote. Built by nvcc it asks the GPU,
// built by the C++ compiler the simulator; tests/tools/conformance.py compares the two.
//
//   TEST(ballots) {
//     …
//     record("ballot.even_lanes", out.get());                  // the same bits
//     record("exp2.range", y.get(), within_ulps(3));           // at most 3 floats apart
//   }
//
// The file that KITTENS_RECORDS names gets, for each record, a line `name type count rule` and the
// bytes of its values. Names are unique, and inputs depend on nothing but the source.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "harness.h"

namespace kittens::testing {

// How near the simulator must be to the hardware. In all rules but same_bits a NaN equals any NaN;
// infinities, and the sign of a zero where a bound leaves no room for it, are the same.
struct rule {
  std::string text;
};

inline rule same_bits() { return {"bits"}; }
inline rule same_values() { return {"value"}; }
// The number of steps from one float to the next.
inline rule within_ulps(int count) { return {"ulp " + to_text(count)}; }
// |simulator − hardware| ≤ relative·|hardware| + absolute
inline rule within(double relative, double absolute) {
  return {"near " + to_text(relative) + " " + to_text(absolute)};
}

template <class T>
inline constexpr const char* recorded_type = nullptr;
template <>
inline constexpr const char* recorded_type<uint8_t> = "u8";
template <>
inline constexpr const char* recorded_type<uint16_t> = "u16";
template <>
inline constexpr const char* recorded_type<uint32_t> = "u32";
template <>
inline constexpr const char* recorded_type<uint64_t> = "u64";
template <>
inline constexpr const char* recorded_type<int> = "i32";
template <>
inline constexpr const char* recorded_type<float> = "f32";
template <>
inline constexpr const char* recorded_type<__half> = "f16";
template <>
inline constexpr const char* recorded_type<__nv_bfloat16> = "bf16";

inline std::ofstream& records() {
  static std::ofstream file = [] {
    const char* path = std::getenv("KITTENS_RECORDS");
    if (path == nullptr) {
      throw std::runtime_error(
          "KITTENS_RECORDS names no file: run this program by `python -m build_tools conformance`");
    }
    return std::ofstream(path, std::ios::binary | std::ios::trunc);
  }();
  return file;
}

template <class T>
void record(const std::string& name, const std::vector<T>& values, const rule& how = same_bits()) {
  static_assert(recorded_type<T> != nullptr, "record() keeps numbers");
  std::ofstream& file = records();
  file << name << ' ' << recorded_type<T> << ' ' << values.size() << ' ' << how.text << '\n';
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
  file.flush();
  if (!file) throw std::runtime_error("record " + name + " could not be written");
}

// Every `step`-th value.
template <class T>
std::vector<T> every(int step, const std::vector<T>& values) {
  std::vector<T> some;
  for (size_t i = 0; i < values.size(); i += step) some.push_back(values[i]);
  return some;
}

// Equally distributed in [−1, 1), with 12 bits.
inline std::vector<float> random_values(int count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(generator() % 4096) / 2048 - 1);
  }
  return values;
}

template <class T>
std::vector<T> narrow(const std::vector<float>& values) {
  std::vector<T> elements;
  for (const float v : values) elements.push_back(T(v));
  return elements;
}
template <class T>
std::vector<float> widen(const std::vector<T>& elements) {
  std::vector<float> values;
  for (const T e : elements) values.push_back(static_cast<float>(e));
  return values;
}

// How far two sums of a tensor core may be apart, of `steps` products that are 16 deep, where no
// sum of absolute values exceeds `most`. The hardware aligns the 17 addends of a step to the
// largest and cuts them off, at worst below 2^-24 of it, then cuts the sum off to a float; the
// simulator adds one product after the other and rounds 16 times:
//   steps · (17·2^-24 + 2^-23 + 16·2^-24) · most
inline rule within_products(int steps, double most) {
  return within(0, steps * 35 * 0x1p-24 * most);
}

}  // namespace kittens::testing
