#include "sim/tensor_core.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "sim/shared_memory.hpp"

namespace kittens::sim {
namespace {

constexpr int kPieceElements = 8;  // of the 16 bytes that stay together
constexpr int kCoreLines = 8;

// Eight numbers, which compilers make one or two registers of.
using eight_floats [[gnu::vector_size(32)]] = float;
using eight_words [[gnu::vector_size(32)]] = uint32_t;
using eight_halves [[gnu::vector_size(16)]] = uint16_t;

// Exponent and mantissa of a half move to where a float has them; the multiplication mends the
// bias, also of subnormal numbers. Infinities and NaNs need their exponent.
[[gnu::always_inline]] inline void convert(eight_floats& wide, const eight_halves& narrow,
                                           matrix_type type) {
  constexpr float kBias = 0x1p112f;
  constexpr uint32_t kInfinity = 0x7c00, kExponent = 0x7f800000;
  const eight_words bits = __builtin_convertvector(narrow, eight_words);
  if (type == matrix_type::bf16) {
    wide = reinterpret_cast<eight_floats>(bits << 16);
    return;
  }
  const eight_words magnitude = bits & 0x7fffu;
  const eight_floats scaled = reinterpret_cast<eight_floats>(magnitude << 13) * kBias;
  const auto special = reinterpret_cast<eight_words>(magnitude >= kInfinity) & kExponent;
  wide = reinterpret_cast<eight_floats>(reinterpret_cast<eight_words>(scaled) | special |
                                        (bits & 0x8000u) << 16);
}

// The elements of a piece, `step` floats apart.
[[gnu::always_inline]] inline void read_piece(const uint8_t* from, matrix_type type, float* to,
                                              int step) {
  eight_halves narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  eight_floats wide;
  convert(wide, narrow, type);
  if (step == 1) {
    std::memcpy(to, &wide, sizeof wide);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < kPieceElements; ++i) to[i * step] = wide[i];
  }
}

}  // namespace

float to_float(matrix_type type, uint16_t bits) {
  const eight_halves narrow = {bits};
  eight_floats wide;
  convert(wide, narrow, type);
  return wide[0];
}

shared_operand::shared_operand(uint64_t descriptor, bool mn_major, int mn_extent)
    : is_mn_major(mn_major), extent(mn_extent) {
  constexpr int kSwizzles[4] = {0, 128, 64, 32};
  const auto field = [&](int bit) { return static_cast<int>(descriptor >> bit & 0x3fff) << 4; };
  start = int64_t{field(0)} - kSharedWindowStart;
  leading = field(16);
  stride = field(32);
  base_offset = static_cast<int>(descriptor >> 49 & 7);
  swizzle = kSwizzles[descriptor >> 62];
}

int shared_operand::lines() const { return is_mn_major ? kProductDepth : extent; }

int shared_operand::pieces() const {
  return (is_mn_major ? extent : kProductDepth) / kPieceElements;
}

int64_t shared_operand::line_offset(int line) const {
  const int pitch = swizzle != 0 ? swizzle : 16;
  const int core_step = is_mn_major && swizzle == 0 ? leading : stride;
  return line % kCoreLines * pitch + int64_t{line / kCoreLines} * core_step;
}

int64_t shared_operand::piece_offset(int piece) const {
  if (swizzle == 0) return int64_t{piece} * (is_mn_major ? stride : leading);
  const int together = swizzle / 16;
  return piece % together * 16 + int64_t{piece / together} * leading;
}

int64_t shared_operand::swizzled(int64_t offset) const {
  return swizzle == 0 ? offset : offset ^ ((offset >> 7 & (swizzle / 16 - 1)) << 4);
}

bool shared_operand::is_refused(int64_t shared_bytes, char (&why)[256]) const {
  if (base_offset != 0) {
    std::snprintf(why, sizeof why, "base offset %d: only 0 is known here", base_offset);
    return true;
  }
  int64_t end = 0;
  if (swizzle == 0) {
    end = start + line_offset(lines() - 1) + piece_offset(pieces() - 1) + 16;
  } else {
    const int64_t within = start & (kCoreLines * swizzle - 1);  // of 8 lines
    if (within >= swizzle) {
      std::snprintf(why, sizeof why,
                    "offset %lld of shared memory is not a multiple of %d, up to bytes within a "
                    "line of %d",
                    static_cast<long long>(start), kCoreLines * swizzle, swizzle);
      return true;
    }
    const int used = std::min(pieces() * 16, swizzle);
    if (within + used > swizzle) {
      std::snprintf(why, sizeof why, "%d bytes from byte %lld on leave a line of %d", used,
                    static_cast<long long>(within), swizzle);
      return true;
    }
    const int64_t last_chunk = int64_t{(pieces() * 16 - 1) / swizzle} * leading;
    end = start - within + line_offset(lines() - 1) + last_chunk + swizzle;
  }
  if (start >= 0 && end <= shared_bytes) return false;
  std::snprintf(why, sizeof why,
                "it reaches from offset %lld to %lld, outside of the block's %lld bytes of shared "
                "memory",
                static_cast<long long>(start), static_cast<long long>(end),
                static_cast<long long>(shared_bytes));
  return true;
}

void shared_operand::read(const uint8_t* shared, matrix_type type, float* to) const {
  constexpr int kMostPieces = 256 / kPieceElements;
  int64_t piece_offsets[kMostPieces];
  for (int piece = 0; piece < pieces(); ++piece) piece_offsets[piece] = piece_offset(piece);
  const int step = is_mn_major ? 1 : extent;  // in `to`, from one element of a piece to the next
  const int line_step = is_mn_major ? extent : 1;
  for (int line = 0; line < lines(); ++line) {
    const int64_t begin = start + line_offset(line);
    for (int piece = 0; piece < pieces(); ++piece) {
      const uint8_t* const from = shared + swizzled(begin + piece_offsets[piece]);
      read_piece(from, type, to + line * line_step + piece * kPieceElements * step, step);
    }
  }
}

void read_fragments(const uint32_t (&a)[kWarpgroupThreads][4], matrix_type type, float* to) {
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    const int lane = thread % 32;
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
      to[k * kProductRows + row] = to_float(type, static_cast<uint16_t>(a[thread][i]));
      to[(k + 1) * kProductRows + row] = to_float(type, static_cast<uint16_t>(a[thread][i] >> 16));
    }
  }
}

namespace {

// Rows × (8·Vectors) elements of d stay in registers over all 16 steps. Products of 16-bit numbers
// are exact, so that the sum has the same bits with and without fused multiply-adds.
template <int Rows, int Vectors>
[[gnu::always_inline]] inline void multiply_part(float* d, const float* a, const float* b,
                                                 int width) {
  eight_floats sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows * Vectors; ++i) {
    std::memcpy(&sum[i / Vectors][i % Vectors], d + i / Vectors * width + i % Vectors * 8,
                sizeof sum[0][0]);
  }
  for (int k = 0; k < kProductDepth; ++k) {
    const float* const factors = b + k * width;
#pragma GCC unroll 8
    for (int i = 0; i < Rows * Vectors; ++i) {
      eight_floats factor;
      std::memcpy(&factor, factors + i % Vectors * 8, sizeof factor);
      sum[i / Vectors][i % Vectors] += a[k * kProductRows + i / Vectors] * factor;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows * Vectors; ++i) {
    std::memcpy(d + i / Vectors * width + i % Vectors * 8, &sum[i / Vectors][i % Vectors],
                sizeof sum[0][0]);
  }
}

[[gnu::always_inline]] inline void multiply(float* d, const float* a, const float* b, int width) {
  constexpr int kRows = 4, kVectors = 2;
  for (int row = 0; row < kProductRows; row += kRows) {
    float* const line = d + row * width;
    int column = 0;
    for (; column + 8 * kVectors <= width; column += 8 * kVectors) {
      multiply_part<kRows, kVectors>(line + column, a + row, b + column, width);
    }
    if (column < width) multiply_part<kRows, 1>(line + column, a + row, b + column, width);
  }
}

void multiply_anywhere(float* d, const float* a, const float* b, int width) {
  multiply(d, a, b, width);
}

[[gnu::target("avx2")]] void multiply_avx2(float* d, const float* a, const float* b, int width) {
  multiply(d, a, b, width);
}

// Columns side by side, each of which adds its 16 products one after the other.
[[gnu::always_inline]] inline void multiply(matrix_type type, warp_product& product) {
  constexpr int kRows = 4;
  float a[16][kProductDepth];
  for (int i = 0; i < 2 * 16; ++i) {
    read_piece(reinterpret_cast<const uint8_t*>(product.a) + 16 * i, type, a[0] + 8 * i, 1);
  }
  eight_floats b[kProductDepth];
  for (int k = 0; k < kProductDepth; ++k) {
    eight_halves narrow;
    std::memcpy(&narrow, product.b[k], sizeof narrow);
    convert(b[k], narrow, type);
  }
  for (int row = 0; row < 16; row += kRows) {
    eight_floats sum[kRows];
    std::memcpy(sum, product.d[row], sizeof sum);
    for (int k = 0; k < kProductDepth; ++k) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i] += a[row + i][k] * b[k];
    }
    std::memcpy(product.d[row], sum, sizeof sum);
  }
}

void multiply_anywhere(matrix_type type, warp_product& product) { multiply(type, product); }

[[gnu::target("avx2")]] void multiply_avx2(matrix_type type, warp_product& product) {
  multiply(type, product);
}

}  // namespace

void multiply_add(matrix_type type, warp_product& product) {
  static const bool is_wide = __builtin_cpu_supports("avx2") != 0;
  is_wide ? multiply_avx2(type, product) : multiply_anywhere(type, product);
}

void multiply_add(float* d, const float* a, const float* b, int width) {
  static const bool is_wide = __builtin_cpu_supports("avx2") != 0;
  is_wide ? multiply_avx2(d, a, b, width) : multiply_anywhere(d, a, b, width);
}

}  // namespace kittens::sim
