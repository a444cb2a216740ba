// The box of a tensor that a tensor copy moves: which bytes of global memory its rows are, and
// where they stand in shared memory.
#pragma once

#include <cstdint>

#include "sim/bulk_api.hpp"

namespace kittens::sim {

struct tensor_box {
  static constexpr int64_t kPieceBytes = 16;  // what a swizzle moves

  tensor_map map;  // a copy: the kernel's own ends with the thread that started the operation
  coordinates corner;

  // One row, along the innermost dimension: the part of it that lies inside of the tensor.
  // (What the H200 does, here and in all of this, is in tests/kittens/arch/test_tma.cu.)
  struct row {
    uint8_t* global = nullptr;     // of its first byte inside
    int64_t first = 0, bytes = 0;  // of the packed row; 0 bytes: all of it lies outside
  };

  int64_t row_bytes() const { return map.box[0] * host::bytes_of(map.kind); }
  int64_t rows() const;
  int64_t bytes() const { return rows() * row_bytes(); }  // what a barrier counts
  // From one row to the next in shared memory: with a swizzle, rows are as wide as it is.
  int64_t pitch() const { return map.swizzle_bytes != 0 ? map.swizzle_bytes : row_bytes(); }
  row row_at(int64_t index) const;

  // The same for a store, which writes whole 16-byte pieces: up to the end of the one in which the
  // tensor's row ends.
  row stored_row_at(int64_t index) const;

  // Calls f(address, bytes) for each piece of the box at `shared`.
  template <class F>
  void for_each_piece(const uint8_t* shared, F f) const {
    if (row_bytes() == pitch()) return f(shared, bytes());  // the swizzle stays within a row
    for (int64_t i = 0; i < rows(); ++i) {
      const auto start = reinterpret_cast<intptr_t>(shared) + i * pitch();
      for (int64_t at = 0; at < row_bytes(); at += kPieceBytes) {
        f(reinterpret_cast<const uint8_t*>(swizzled(start + at, map.swizzle_bytes)), kPieceBytes);
      }
    }
  }

  // Copies a row between its packed form and its places in the box at `shared`.
  void scatter(uint8_t* shared, int64_t index, const uint8_t* packed) const;
  void gather(const uint8_t* shared, int64_t index, uint8_t* packed) const;
};

// to[i] += from[i], rounded to nearest even, for `bytes` of elements. Atomic with regard to itself.
void add_elements(host::dtype kind, uint8_t* to, const uint8_t* from, int64_t bytes);

}  // namespace kittens::sim
