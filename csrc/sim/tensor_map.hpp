// The simulator's tensor map: what a CUtensorMap holds, in plain sight.
#pragma once

#include <cstdint>

#include "kittens/host/dtype.h"

namespace kittens::sim {

struct alignas(64) tensor_map {
  static constexpr int kMaxRank = 5;
  static constexpr uint32_t kValid = 0x7e4504a9;  // what no other memory is likely to hold

  uint32_t valid = 0;
  host::dtype kind = host::dtype::float32;
  uint8_t* data = nullptr;
  int64_t extent[kMaxRank] = {};            // elements, innermost dimension first
  int64_t stride_bytes[kMaxRank - 1] = {};  // of dimensions 1 …
  uint16_t box[kMaxRank] = {};              // elements
  uint8_t rank = 0;
  uint8_t swizzle_bytes = 0;      // 0, 32, 64 or 128
  bool in_global_memory = false;  // and not a kernel's parameter
};
static_assert(sizeof(tensor_map) == 128);

// Where the byte at `offset` of shared memory stands under a swizzle: 16-byte pieces change places
// by the address's own bits, so that the pattern repeats every 8 · swizzle_bytes.
constexpr int64_t swizzled(int64_t offset, int swizzle_bytes) {
  if (swizzle_bytes == 0) return offset;
  return offset ^ ((offset >> 7 & (swizzle_bytes / 16 - 1)) << 4);
}

}  // namespace kittens::sim
