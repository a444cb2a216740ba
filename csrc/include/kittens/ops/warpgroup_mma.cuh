// Matrix products of a warpgroup on the tensor cores (wgmma), as ops/group.cuh offers them:
//
//   warpgroup::mma_AB(d, a, b)      d += a·b      a [64, K]   b [K, N]
//   warpgroup::mma_ABt(d, a, b)     d += a·bᵀ     a [64, K]   b [N, K]
//   warpgroup::mma_AtB(d, a, b)     d += aᵀ·b     a [K, 64]   b [K, N]
//   warpgroup::mma_AtBt(d, a, b)    d += aᵀ·bᵀ    a [K, 64]   b [N, K]
//   warpgroup::mm_AB(d, a, b) …     d = …
//
// d is rt_fl<16, N> in row layout, N up to 256: warp w of the group holds rows 16·w to 16·w + 15 of
// the product. b, and a, are swizzled shared tiles of bf16 or half. Untransposed a may also come
// from registers, rt<T, 16, K> in row layout, of each warp its own rows; b may be some of a tile's
// rows, rows_of<N>(tile, first).
//
//   warpgroup::mma_AB_row_sums(d, a, b)   columns 0 … N − 1 of d += a·b, as by mma_AB, and columns
//                                         N … N + 7 += the sums of a's rows
//   row_sums_of(vec, d)                   takes the sums out, after the wait
//
// There b is an st_ones of K rows and N columns, its ones set, N up to 240; a comes from registers,
// and d is rt_fl<16, N + 16>. The sums are of a's elements as the product takes them, rounded to T;
// they cost eight columns more, and no instruction.
//
// All products are asynchronous:
//
//   warpgroup::mma_fence();              opens a group: registers written before are seen
//   warpgroup::mm_ABt(s, q, k);          asks for products, as many as one likes
//   warpgroup::mma_AB(o, p, v);
//   warpgroup::mma_commit_group();       closes the group
//   …                                    anything that touches neither s, o, p nor q, k, v
//   warpgroup::mma_async_wait<0>();      all groups but the last 0 are done: s and o may be read,
//                                        and p, q, k, v written
//
// Products into one d follow each other without waits. A shared tile that ordinary stores wrote
// needs fence_async_proxy by the writers (store(st, rt) and load(st, …) end with it) and a barrier;
// one that TMA brought needs the wait for its semaphore.
#pragma once

#include <concepts>
#include <cstdint>

#include "kittens/arch/shared.cuh"
#include "kittens/arch/wgmma.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/shared_tile.cuh"

namespace kittens::detail {

inline constexpr int kProductRows = 64;      // of a warpgroup
inline constexpr int kProductMaxCols = 256;  // of one instruction
inline constexpr int kSlice = 16;            // of K, of one instruction
inline constexpr int kSumCols = 8;  // of ones, in a product with row sums: the fewest there are

// A shared tile as wgmma walks through it, a slice of K at a time. A chunk of columns (st) holds
// groups of 8 rows, each of which is 8 · swizzle_bytes long.
template <arch::major Major, right_side_tile S>
struct product_operand {
  static constexpr int kElementBytes = sizeof(typename S::dtype);
  static constexpr int kGroupBytes = 8 * S::swizzle_bytes;
  static constexpr int kChunkBytes = S::chunk_elements * kElementBytes;

  // The descriptor of slice 0. Along K, the eight-row groups of MN follow each other; along MN, the
  // eight-row groups of K do, and the next columns are in the next chunk.
  KITTENS_DEVICE static uint64_t descriptor(const S& s) {
    constexpr int kLeading = Major == arch::major::mn ? kChunkBytes : 16;
    return arch::matrix_descriptor(arch::shared_address(s.data), kLeading, kGroupBytes,
                                   S::swizzle_bytes);
  }

  // Where slice k begins, in bytes from slice 0. Pieces within a row change places by their
  // addresses, so an offset inside of the first row is all that it takes.
  KITTENS_INLINE static constexpr int offset(int k) {
    if (Major == arch::major::mn) return k * kSlice * S::swizzle_bytes;
    return k * kSlice / S::chunk_cols * kChunkBytes + k * kSlice % S::chunk_cols * kElementBytes;
  }
};

// A descriptor `bytes` further on. Its lowest word holds address / 16 and no sum of addresses
// in shared memory carries out of its field, so the upper word stays as it is.
KITTENS_DEVICE uint64_t advance(uint64_t descriptor, int bytes) {
  const uint32_t low = static_cast<uint32_t>(descriptor) + static_cast<uint32_t>(bytes / 16);
  return (descriptor & 0xffffffff00000000u) | low;
}

// Rows, columns and K of op(a)·op(b).
template <bool ATransposed, bool BTransposed, class A, class B>
struct product_shape {
  static constexpr int rows = (ATransposed ? A::cols : A::rows) * (register_tile<A> ? 4 : 1);
  static constexpr int cols = BTransposed ? B::rows : B::cols;
  static constexpr int depth_a = ATransposed ? A::rows : A::cols;
  static constexpr int depth_b = BTransposed ? B::cols : B::rows;
};

// What a product takes, in sentences. Returns whether the operands are such that the compiler
// should look further.
template <bool ATransposed, bool BTransposed, class D, class A, class B>
KITTENS_INLINE constexpr bool check_product() {
  constexpr bool kAt = register_tile<A> && ATransposed;
  constexpr bool kA = swizzled_tile<A> || row_layout_tile<A>;
  static_assert(row_layout_tile<D>,
                "warpgroup product: d must be a register tile in row layout, rt_fl<16, N>");
  static_assert(right_side_tile<B>, "warpgroup product: b must be a swizzled shared tile");
  static_assert(!kAt, "warpgroup product: transposed, a must be a shared tile");
  static_assert(kA || kAt,
                "warpgroup product: a must be a swizzled shared tile, or a register tile in row "
                "layout, rt<T, 16, K>");
  if constexpr (row_layout_tile<D> && right_side_tile<B> && kA && !kAt) {
    using shape = product_shape<ATransposed, BTransposed, A, B>;
    constexpr bool kFloat = std::same_as<typename D::dtype, float>;
    constexpr bool kHalfWidth = half_width<typename A::dtype> && half_width<typename B::dtype>;
    static_assert(kFloat && D::rows == 16,
                  "warpgroup product: d must be rt_fl<16, N>: 16 rows for each of the four warps");
    static_assert(kHalfWidth, "warpgroup product: a and b must hold bf16 or half");
    static_assert(std::same_as<typename A::dtype, typename B::dtype>,
                  "warpgroup product: a and b must hold the same type");
    static_assert(
        shape::rows == kProductRows,
        "warpgroup product: the left side must have 64 rows, 16 of each warp in registers");
    static_assert(shape::depth_a == shape::depth_b,
                  "warpgroup product: the inner extents of a and b must be equal");
    static_assert(shape::cols == D::cols,
                  "warpgroup product: d must have a column per column of the right side");
    static_assert(shape::cols <= kProductMaxCols,
                  "warpgroup product: at most 256 columns; take several products");
    return kFloat && kHalfWidth;
  }
  return false;
}

template <bool Transposed>
inline constexpr arch::major kMajorOfA = Transposed ? arch::major::mn : arch::major::k;
template <bool Transposed>
inline constexpr arch::major kMajorOfB = Transposed ? arch::major::k : arch::major::mn;

// d (+)= op(a)·op(b). The loops' bounds and offsets are constants: a product is its instructions,
// with one addition each for a descriptor.
template <bool ATransposed, bool BTransposed, bool Accumulate, class D, class A, class B>
KITTENS_DEVICE void warpgroup_product(D& d, const A& a, const B& b) {
  if constexpr (check_product<ATransposed, BTransposed, D, A, B>()) {
    using T = typename A::dtype;
    constexpr arch::major kA = kMajorOfA<ATransposed>, kB = kMajorOfB<BTransposed>;
    constexpr int kSlices = product_shape<ATransposed, BTransposed, A, B>::depth_b / kSlice;
    using from_b = product_operand<kB, B>;
    const uint64_t b_start = from_b::descriptor(b);
    if constexpr (shared_tile<A>) {
      using from_a = product_operand<kA, A>;
      const uint64_t a_start = from_a::descriptor(a);
#pragma unroll
      for (int k = 0; k < kSlices; ++k) {
        arch::wgmma<T, D::cols, kA, kB>(d.data[0], advance(a_start, from_a::offset(k)),
                                        advance(b_start, from_b::offset(k)), Accumulate || k > 0);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kSlices; ++k) {
        const uint32_t fragment[4] = {a.data[0][4 * k], a.data[0][4 * k + 1], a.data[0][4 * k + 2],
                                      a.data[0][4 * k + 3]};
        arch::wgmma<T, D::cols, kB>(d.data[0], fragment, advance(b_start, from_b::offset(k)),
                                    Accumulate || k > 0);
      }
    }
  }
}

// What a product with row sums takes, in sentences. Returns whether the compiler should look
// further.
template <class D, class A, class B>
KITTENS_INLINE constexpr bool check_product_with_row_sums() {
  static_assert(tile_with_ones<B>, "product with row sums: b must be an st_ones<T, K, N>");
  if constexpr (tile_with_ones<B>) {
    using T = typename B::dtype;
    constexpr bool kHalfWidth = half_width<T>;
    constexpr bool kA = std::same_as<A, rt<T, 16, B::rows>>;
    constexpr bool kD = std::same_as<D, rt<float, 16, B::cols + 16>>;
    constexpr bool kNarrow = B::cols + kSumCols <= kProductMaxCols;
    static_assert(kHalfWidth, "product with row sums: a and b must hold bf16 or half");
    static_assert(kA, "product with row sums: a must be rt<T, 16, K> where b is st_ones<T, K, N>");
    static_assert(kD,
                  "product with row sums: d must be rt_fl<16, N + 16> where b is st_ones<T, K, N>");
    static_assert(kNarrow, "product with row sums: b may have at most 240 columns");
    return kHalfWidth && kA && kD && kNarrow;
  }
  return false;
}

// d's first N columns += a·b, and its next eight += the sums of a's rows: to the instruction the
// ones are columns of b, those behind its last.
template <class D, class A, class B>
KITTENS_DEVICE void product_with_row_sums(D& d, const A& a, const B& b) {
  if constexpr (check_product_with_row_sums<D, A, B>()) {
    using T = typename B::dtype;
    using from_b = product_operand<arch::major::mn, typename B::tile_type>;
    constexpr int kWidth = B::cols + kSumCols;
    const uint64_t b_start = from_b::descriptor(b.tile);
    // The last four registers of d stay unused: no instruction, and no register, is spent on them.
    auto& accumulators = reinterpret_cast<float (&)[kWidth / 2]>(d.data[0]);
#pragma unroll
    for (int k = 0; k < B::rows / kSlice; ++k) {
      const uint32_t fragment[4] = {a.data[0][4 * k], a.data[0][4 * k + 1], a.data[0][4 * k + 2],
                                    a.data[0][4 * k + 3]};
      arch::wgmma<T, kWidth, arch::major::mn>(accumulators, fragment,
                                              advance(b_start, from_b::offset(k)), true);
    }
  }
}

}  // namespace kittens::detail

namespace kittens {

// vec = the sums that mma_AB_row_sums has left in d (after the wait), in all lanes of a row.
template <int Cols>
KITTENS_DEVICE void row_sums_of(typename rt<float, 16, Cols>::col_vec& vec,
                                const rt<float, 16, Cols>& d) {
  static_assert(Cols > 16, "row_sums_of: d must be rt_fl<16, N + 16>, as mma_AB_row_sums takes it");
  constexpr int kSums = (Cols - 16) / 2;  // the first register of that column; the next row's + 2
  vec.data[0].set({d.data[0][kSums]});
  vec.data[1].set({d.data[0][kSums + 2]});
}

}  // namespace kittens
