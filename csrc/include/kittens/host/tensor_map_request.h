// What a tensor map is made from, and what is refused before it is: the same in both worlds. Plain
// C++.
#pragma once

#include <cstdint>
#include <string>

#include "kittens/host/dtype.h"
#include "kittens/host/launch_config.h"
#include "kittens/host/launchers.h"

namespace kittens::host {

struct tensor_map_request {
  static constexpr int kMaxRank = 5;

  const void* data = nullptr;  // aligned to 16; what a store writes to, too
  dtype kind = dtype::float32;
  int rank = 0;                             // 1 to 5 dimensions
  int64_t extent[kMaxRank] = {};            // elements, innermost dimension first
  int64_t stride_bytes[kMaxRank - 1] = {};  // of dimensions 1, 2, …, multiples of 16; dimension 0
                                            // is contiguous; of an extent of 1, anything
  int box[kMaxRank] = {};                   // elements that one copy moves, 1 to 256
  int swizzle_bytes = 0;                    // 0 (none), 32, 64 or 128: at least a row of the box
};

inline constexpr int64_t kMaxTensorExtent = int64_t{1} << 32;
inline constexpr int64_t kMaxTensorStride = int64_t{1} << 40;  // exclusive
inline constexpr int kMaxBoxExtent = 256;
inline constexpr int64_t kTensorAlignment = 16;

namespace detail {

constexpr bool is_swizzle(int bytes) {
  return bytes == 0 || bytes == 32 || bytes == 64 || bytes == 128;
}

// Of the box, in shared memory.
constexpr int64_t box_bytes(const tensor_map_request& r) {
  int64_t bytes = r.swizzle_bytes != 0 ? r.swizzle_bytes : r.box[0] * bytes_of(r.kind);
  for (int d = 1; d < r.rank; ++d) bytes *= r.box[d];
  return bytes;
}

constexpr bool is_stride(int64_t bytes) {
  return bytes >= 0 && bytes < kMaxTensorStride && bytes % kTensorAlignment == 0;
}

}  // namespace detail

// Whether the hardware takes it; a handful of comparisons, done for each map.
inline bool is_encodable(const tensor_map_request& r) {
  if (r.rank < 1 || r.rank > r.kMaxRank || !detail::is_swizzle(r.swizzle_bytes)) return false;
  for (int d = 0; d < r.rank; ++d) {
    if (r.extent[d] < 1 || r.extent[d] > kMaxTensorExtent) return false;
    if (r.box[d] < 1 || r.box[d] > kMaxBoxExtent) return false;
    if (d > 0 && r.extent[d] > 1 && !detail::is_stride(r.stride_bytes[d - 1])) return false;
  }
  const int64_t row = r.box[0] * bytes_of(r.kind);
  return row % kTensorAlignment == 0 && (r.swizzle_bytes == 0 || row <= r.swizzle_bytes) &&
         detail::box_bytes(r) <= kMaxSharedBytes && r.data != nullptr &&
         reinterpret_cast<uintptr_t>(r.data) % kTensorAlignment == 0;
}

// What is wrong with a request that is not encodable: `box[0] must be 1 to 256, got 512`.
inline std::string why_not_encodable(const tensor_map_request& r) {
  const auto got = [](int64_t value) { return ", got " + std::to_string(value); };
  const auto of = [](const char* what, int d) {
    return std::string(what) + "[" + std::to_string(d) + "]";
  };
  if (r.rank < 1 || r.rank > r.kMaxRank) return "rank must be 1 to 5" + got(r.rank);
  if (!detail::is_swizzle(r.swizzle_bytes)) {
    return "swizzle_bytes must be 0, 32, 64 or 128" + got(r.swizzle_bytes);
  }
  for (int d = 0; d < r.rank; ++d) {
    if (r.extent[d] < 1 || r.extent[d] > kMaxTensorExtent) {
      return of("extent", d) + " must be 1 to 4294967296" + got(r.extent[d]);
    }
    if (r.box[d] < 1 || r.box[d] > kMaxBoxExtent) {
      return of("box", d) + " must be 1 to 256" + got(r.box[d]);
    }
    if (d > 0 && r.extent[d] > 1 && !detail::is_stride(r.stride_bytes[d - 1])) {
      return of("stride_bytes", d - 1) + " must be a multiple of 16 below 2^40" +
             got(r.stride_bytes[d - 1]);
    }
  }
  const int64_t row = r.box[0] * bytes_of(r.kind);
  if (row % kTensorAlignment != 0) {
    return "a row of the box must be a multiple of 16 bytes" + got(row);
  }
  if (r.swizzle_bytes != 0 && row > r.swizzle_bytes) {
    return "a row of the box must be at most swizzle_bytes (" + std::to_string(r.swizzle_bytes) +
           ")" + got(row);
  }
  if (detail::box_bytes(r) > kMaxSharedBytes) {
    return "a box must be at most " + std::to_string(kMaxSharedBytes) + " bytes" +
           got(detail::box_bytes(r));
  }
  if (r.data == nullptr) return "data must not be null";
  const auto address = reinterpret_cast<uintptr_t>(r.data);
  if (address % kTensorAlignment != 0) {
    return "data must be aligned to 16 bytes, got an address that is " +
           std::to_string(address % kTensorAlignment) + " past it";
  }
  return "";
}

// Of a tile with padding, whose tensors must not have more columns than it (types/tma_map.cuh).
inline void check_columns(int tile_cols, int64_t tensor_cols) {
  if (tensor_cols <= tile_cols) return;
  throw error("tma_sequence_map: a tile with padding has room for " + std::to_string(tile_cols) +
              " columns, the tensor has " + std::to_string(tensor_cols));
}

// The strides that the hardware is given: where an extent is 1, one that it takes.
constexpr int64_t valid_stride(const tensor_map_request& r, int dimension) {
  return r.extent[dimension] > 1 ? r.stride_bytes[dimension - 1] : kTensorAlignment;
}

}  // namespace kittens::host
