// Values of a cache of e4m3: a byte each.
#pragma once

#include <cstdint>
#include <vector>

#include "kittens/types/dtype.cuh"
#include "kittens/types/fp8.cuh"

inline uint8_t e4m3_of(float x) { return static_cast<uint8_t>(kittens::pack_e4m3(x, 0)); }
inline float float_of(uint8_t e4m3) {
  float low, high;
  kittens::unpack<kittens::half>(low, high, kittens::halves_of(e4m3));
  return low;
}
// What a cache of e4m3 has for values of bf16, and these rounded to it.
inline std::vector<uint8_t> as_e4m3(const std::vector<kittens::bf16>& values) {
  std::vector<uint8_t> bytes;
  for (const kittens::bf16 x : values) bytes.push_back(e4m3_of(kittens::convert<float>(x)));
  return bytes;
}
inline std::vector<float> floats_of(const std::vector<uint8_t>& values) {
  std::vector<float> floats;
  for (const uint8_t x : values) floats.push_back(float_of(x));
  return floats;
}
inline void round_to_e4m3(std::vector<kittens::bf16>& values) {
  for (kittens::bf16& x : values) {
    x = kittens::convert<kittens::bf16>(float_of(e4m3_of(kittens::convert<float>(x))));
  }
}
