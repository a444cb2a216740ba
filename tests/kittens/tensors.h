// Boxes of tensors, for tests of tensor copies: what a copy must do, worked out element by element
// on the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kittens/host/tensor_map_request.h"

namespace kittens::testing {

struct box_case {
  host::dtype kind = host::dtype::bfloat16;
  int rank = 1;
  int extent[5] = {};  // innermost first
  int box[5] = {};
  int corner[5] = {};
  int swizzle = 0;        // bytes
  int row_padding = 0;    // bytes between rows, beyond what makes them multiples of 16
  int stride_of_one = 0;  // bytes: what is said of dimensions of extent 1; 0: the right thing

  int64_t element_bytes() const { return host::bytes_of(kind); }
  // Bytes from one index of a dimension to the next.
  int64_t stride(int dimension) const {
    if (dimension == 0) return element_bytes();
    int64_t bytes = (extent[0] * element_bytes() + row_padding + 15) / 16 * 16;
    for (int d = 1; d < dimension; ++d) bytes *= extent[d];
    return bytes;
  }
  int64_t tensor_bytes() const { return stride(rank - 1) * extent[rank - 1]; }
  int box_elements() const {
    int count = 1;
    for (int d = 0; d < rank; ++d) count *= box[d];
    return count;
  }
  int box_bytes() const { return box_elements() * static_cast<int>(element_bytes()); }
  // In shared memory, a row of the box has the swizzle's width.
  int pitch() const { return swizzle != 0 ? swizzle : box[0] * static_cast<int>(element_bytes()); }
  int shared_bytes() const { return box_elements() / box[0] * pitch(); }

  host::tensor_map_request request(const void* data) const {
    host::tensor_map_request r{.data = data, .kind = kind, .rank = rank, .swizzle_bytes = swizzle};
    for (int d = 0; d < rank; ++d) {
      r.extent[d] = extent[d];
      r.box[d] = box[d];
      if (d == 0) continue;
      r.stride_bytes[d - 1] = extent[d] == 1 && stride_of_one != 0 ? stride_of_one : stride(d);
    }
    return r;
  }

  // Where element `i` of the box is in the tensor, in bytes; −1: outside of it. Rows of the tensor
  // have `cols` elements.
  int64_t place_in_tensor(int i, int cols) const {
    int64_t place = 0;
    for (int d = 0; d < rank; ++d) {
      const int at = corner[d] + i % box[d];
      i /= box[d];
      if (at < 0 || at >= (d == 0 ? cols : extent[d])) return -1;
      place += at * stride(d);
    }
    return place;
  }
  // … and in the box in shared memory. PTX ISA, Swizzling Modes: of the eight 16-byte pieces of
  // line n of 128 bytes, piece p stands at p ^ (n % (swizzle / 16)).
  int64_t place_in_shared(int i) const {
    const int64_t plain = i / box[0] * pitch() + i % box[0] * element_bytes();
    if (swizzle == 0) return plain;
    const int64_t line = plain / 128, piece = plain % 128 / 16;
    return 128 * line + 16 * (piece ^ line % (swizzle / 16)) + plain % 16;
  }

  // A box in shared memory, after a load over bytes that were all `before`.
  std::vector<uint8_t> in_shared(const std::vector<uint8_t>& tensor, uint8_t before) const {
    std::vector<uint8_t> result(shared_bytes(), before);
    for (int i = 0; i < box_elements(); ++i) {
      const int64_t from = place_in_tensor(i, extent[0]);
      uint8_t* to = &result[place_in_shared(i)];
      if (from >= 0) {
        std::memcpy(to, &tensor[from], element_bytes());
      } else {
        std::memset(to, 0, element_bytes());
      }
    }
    return result;
  }
  // The tensor, after a store of a box in shared memory. The last 16 bytes of a row of the tensor
  // are written whole.
  std::vector<uint8_t> after_store(std::vector<uint8_t> tensor,
                                   const std::vector<uint8_t>& shared) const {
    const int piece = 16 / static_cast<int>(element_bytes());
    const int cols = (extent[0] + piece - 1) / piece * piece;
    for (int i = 0; i < box_elements(); ++i) {
      const int64_t to = place_in_tensor(i, cols);
      if (to >= 0) std::memcpy(&tensor[to], &shared[place_in_shared(i)], element_bytes());
    }
    return tensor;
  }

  // The same for the same count.
  static std::vector<uint8_t> random_bytes(int64_t count) {
    std::vector<uint8_t> bytes(count);
    uint64_t state = static_cast<uint64_t>(count);
    for (uint8_t& b : bytes) {
      state = state * 6364136223846793005 + 1442695040888963407;
      b = static_cast<uint8_t>(state >> 56);
    }
    return bytes;
  }
};

// The first place where two are not the same; −1: there is none.
inline int64_t first_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  for (size_t i = 0; i < a.size() || i < b.size(); ++i) {
    if (i >= a.size() || i >= b.size() || a[i] != b[i]) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace kittens::testing
