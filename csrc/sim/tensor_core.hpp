// The arithmetic of a wgmma: operands, as shared memory or registers hold them, become floats,
// which are multiplied.
#pragma once

#include <cstdint>

#include "sim/matrix_api.hpp"

namespace kittens::sim {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kProductRows = 64;
inline constexpr int kProductDepth = 16;  // of 16-bit elements

float to_float(matrix_type type, uint16_t bits);

// An operand in shared memory, as a matrix descriptor says (PTX ISA, Matrix Descriptor Format).
struct shared_operand {
  shared_operand(uint64_t descriptor, bool is_mn_major, int extent);

  int64_t start;        // offset in the block's shared memory
  int leading, stride;  // bytes
  int swizzle;          // bytes: 0, 32, 64, 128
  int base_offset;
  bool is_mn_major;
  int extent;  // rows of a, columns of b

  // Why the operand cannot be read, into `why`; false: it can.
  bool is_refused(int64_t shared_bytes, char (&why)[256]) const;
  // Calls f(offset, bytes) for each piece of it.
  template <class F>
  void for_each_piece(F f) const {
    for (int line = 0; line < lines(); ++line) {
      for (int piece = 0; piece < pieces(); ++piece) {
        f(swizzled(start + line_offset(line) + piece_offset(piece)), 16);
      }
    }
  }
  // Its elements, as [kProductDepth][extent].
  void read(const uint8_t* shared, matrix_type type, float* to) const;

 private:
  // An operand is read in lines, of 16-byte pieces: of its rows if K-major, else of its columns.
  int lines() const;
  int pieces() const;
  // Where line and piece are, relative to `start`; but pieces change places (swizzled).
  int64_t line_offset(int line) const;
  int64_t piece_offset(int piece) const;
  int64_t swizzled(int64_t offset) const;
};

// The 64 × 16 matrix that lanes hold four words each of, as [kProductDepth][kProductRows].
void read_fragments(const uint32_t (&a)[kWarpgroupThreads][4], matrix_type type, float* to);

// d[64][width] += aᵀ·b. a: [16][64], b: [16][width], width a multiple of 8.
void multiply_add(float* d, const float* a, const float* b, int width);

// What a warp multiplies with mma.sync, m16n8k16: d += a·b.
struct warp_product {
  uint16_t a[16][kProductDepth], b[kProductDepth][8];
  float d[16][8];
};
void multiply_add(matrix_type type, warp_product& product);

}  // namespace kittens::sim
