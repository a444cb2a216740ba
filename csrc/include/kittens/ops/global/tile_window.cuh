// What tiles are moved from and to in global memory, and which threads move them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/thread.cuh"
#include "kittens/ops/global/run_access.cuh"
#include "kittens/types/global_tensor.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/shared_tile.cuh"

namespace kittens {
namespace detail {

// A group of warps is Warps neighbours, the first of them a multiple of Warps. It moves a shared
// tile together; a register tile is what one of its warps holds, the rows of warp 0 uppermost.
template <int Warps>
KITTENS_DEVICE int group_warp() {
  if constexpr (Warps == 1) return 0;
  return static_cast<int>(static_cast<unsigned>(arch::warp_id()) % Warps);
}
template <int Warps>
KITTENS_DEVICE int group_thread() {
  return static_cast<int>(static_cast<unsigned>(arch::thread_id()) % (Warps * kWarp));
}

// Rows of the tile that a group moves in one call.
template <int Warps, tile Tile>
inline constexpr int group_rows = register_tile<Tile> ? Warps * Tile::rows : Tile::rows;

// Where element (r + rows, c + cols) of a shared tile is, when (r, c) is at `index`: two additions
// and a XOR instead of the whole swizzle. What is added must not carry: r % 8 has no bit in common
// with rows % 8, nor c with cols.
template <shared_tile S>
KITTENS_INLINE constexpr int moved_index(int index, int rows, int cols) {
  if constexpr (S::is_swizzled) {  // it repeats after 8 rows, and is linear over XOR within them
    return (index ^ S::index(rows % 8, cols % S::chunk_cols)) +
           (cols / S::chunk_cols * S::rows + rows / 8 * 8) * S::chunk_cols;
  } else {
    return index + rows * S::cols + cols;
  }
}

// The upper left corner of a tile in global memory. Where it is bounded, `rows` and `cols` tell how
// many are there, counted from the corner: none of them where it is 0 or less.
template <class T, bool IsBounded>
struct tile_window {
  T* data;
  int64_t row_stride;  // in elements
  int rows = 0, cols = 0;

  KITTENS_DEVICE tile_window from(int row, int col) const {
    return {at(row, col), row_stride, rows - row, cols - col};
  }
  KITTENS_DEVICE T* at(int row, int col) const { return data + row * row_stride + col; }
  KITTENS_DEVICE bool has(int row, int col) const {
    if constexpr (IsBounded) {
      return row < rows && col < cols;
    } else {
      return true;
    }
  }

  // Whether runs of N elements can move as a whole: each is aligned, and there or not there. The
  // answer holds for all runs that begin at multiples of N columns.
  template <int N>
  KITTENS_DEVICE bool moves_in_runs() const {
    const auto bytes = reinterpret_cast<uintptr_t>(data) |
                       static_cast<uintptr_t>(row_stride) * uintptr_t{sizeof(T)};
    return bytes % (N * sizeof(T)) == 0 && (!IsBounded || cols % N == 0);
  }
};

// From the corner of a whole matrix.
template <class T>
KITTENS_DEVICE tile_window<T, false> window_of(T* data, int64_t row_stride) {
  return {data, row_stride};
}

KITTENS_DEVICE int clamp_extent(int64_t n, int most) {
  return n < 0 ? 0 : n < most ? static_cast<int>(n) : most;
}

// Tile number (at.r, at.c) of a tensor, in tiles of Rows × Cols.
template <int Rows, int Cols, class T, int64_t... Extents>
KITTENS_DEVICE tile_window<T, true> window_of(const gl<T, Extents...>& in, coord at) {
  const int64_t row = at.r * Rows, col = at.c * Cols;
  return {in.row({at.b, at.d, row, 0}) + col, in.row_stride, clamp_extent(in.rows - row, Rows),
          clamp_extent(in.cols - col, Cols)};
}

}  // namespace detail
}  // namespace kittens
