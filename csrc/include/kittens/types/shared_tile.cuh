// st: a tile in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/dtype.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/shared_vector.cuh"

namespace kittens {

// swizzle: what the tensor cores and TMA read and write, without bank conflicts. The tile is cut
// into chunks of columns, 128 bytes wide (64 or 32 where the tile is not a multiple of that); a
// chunk is stored row after row, and the 16-byte pieces of a row change places, depending on the
// row: piece i of row r stands at place i ^ (r % 8) (of 128-byte rows; PTX ISA, tensor swizzling
// modes).
//
// naive: row after row, nothing else.
namespace ducks::st_layout {
struct swizzle {};
struct naive {};
}  // namespace ducks::st_layout

namespace detail {

// Bytes of a row of a chunk; 0 for naive.
template <class Layout>
constexpr int swizzle_bytes(int row_bytes) {
  if (!std::same_as<Layout, ducks::st_layout::swizzle>) return 0;
  return row_bytes % 128 == 0 ? 128 : row_bytes % 64 == 0 ? 64 : 32;
}

}  // namespace detail

template <element T, int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
struct alignas(detail::swizzle_bytes<Layout>(Cols * sizeof(T)) == 0
                   ? 16
                   : 8 * detail::swizzle_bytes<Layout>(Cols * sizeof(T))) st {
  using dtype = T;
  using layout = Layout;
  static constexpr int rows = Rows, cols = Cols, num_elements = Rows * Cols;
  static_assert(std::same_as<Layout, ducks::st_layout::swizzle> ||
                    std::same_as<Layout, ducks::st_layout::naive>,
                "the layout of a shared tile is ducks::st_layout::swizzle or ::naive");
  static_assert(Rows > 0 && Rows % kBase == 0 && Cols > 0 && Cols % kBase == 0,
                "a tile's rows and columns must be multiples of 16");

  // One value per column, and one per row.
  using row_vec = sv<T, Cols>;
  using col_vec = sv<T, Rows>;

  static constexpr int swizzle_bytes = detail::swizzle_bytes<Layout>(Cols * sizeof(T));
  static constexpr bool is_swizzled = swizzle_bytes != 0;
  static constexpr int chunk_cols = is_swizzled ? swizzle_bytes / int(sizeof(T)) : Cols;
  static constexpr int chunks = Cols / chunk_cols;
  static constexpr int chunk_elements = Rows * chunk_cols;

  T data[num_elements];

  // Where element (r, c) is in `data`. Neighbours within 16 bytes stay neighbours.
  KITTENS_INLINE static constexpr int index(int r, int c) {
    if constexpr (is_swizzled) {
      const int plain =
          (c / chunk_cols * Rows + r) * swizzle_bytes + c % chunk_cols * int(sizeof(T));  // bytes
      return (plain ^ ((plain >> 7) & (swizzle_bytes / 16 - 1)) << 4) / int(sizeof(T));
    } else {
      return r * Cols + c;
    }
  }
  KITTENS_INLINE T& operator()(int r, int c) { return data[index(r, c)]; }
  KITTENS_INLINE const T& operator()(int r, int c) const { return data[index(r, c)]; }
};

// A swizzled tile, and one more chunk of columns to its right, all ones: group<N>::one(s.ones) sets
// them, once, whatever `tile` holds later. With it as b, warpgroup::mma_AB_row_sums also gives the
// sums of a's rows. (It reads eight of the columns; the swizzle spreads them over the chunk.)
template <element T, int Rows, int Cols>
struct st_ones {
  using dtype = T;
  using tile_type = st<T, Rows, Cols>;
  static constexpr int rows = Rows, cols = Cols;  // of `tile`

  tile_type tile;
  st<T, Rows, tile_type::chunk_cols> ones;
};

template <class S>
inline constexpr bool is_shared_tile = false;
template <class T, int R, int C, class L>
inline constexpr bool is_shared_tile<st<T, R, C, L>> = true;

template <class S>
inline constexpr bool is_tile_with_ones = false;
template <class T, int R, int C>
inline constexpr bool is_tile_with_ones<st_ones<T, R, C>> = true;

template <class S>
concept shared_tile = is_shared_tile<std::remove_cvref_t<S>>;
template <class Tile>
concept tile = register_tile<Tile> || shared_tile<Tile>;
// What wgmma reads.
template <class S>
concept swizzled_tile = shared_tile<S> && std::remove_cvref_t<S>::is_swizzled;
template <class S>
concept tile_with_ones = is_tile_with_ones<std::remove_cvref_t<S>>;

template <int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
using st_bf = st<bf16, Rows, Cols, Layout>;
template <int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
using st_hf = st<half, Rows, Cols, Layout>;
template <int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
using st_fl = st<float, Rows, Cols, Layout>;

}  // namespace kittens
