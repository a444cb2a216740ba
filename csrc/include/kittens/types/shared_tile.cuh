// st: a tile in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/dtype.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/shared_vector.cuh"
#include "kittens/types/tile_sizes.cuh"

namespace kittens {

// swizzle: what the tensor cores and TMA read and write, without bank conflicts. The tile is cut
// into chunks of columns, 128 bytes wide (64 or 32 where the tile is not a multiple of that); a
// chunk is stored row after row, and the 16-byte pieces of a row change places, depending on the
// row: piece i of row r stands at place i ^ (r % 8) (of 128-byte rows; PTX ISA, tensor swizzling
// modes).
//
// swizzle_128: the same in chunks of 128 bytes, whatever the columns; where those end within a
// chunk, padding follows, whose content is anybody's. 80 columns of 16 bits are two copies of TMA
// then and no bank conflict, not five copies of 32-byte rows.
//
// naive: row after row, nothing else.
namespace ducks::st_layout {
struct swizzle {};
struct swizzle_128 {};
struct naive {};
}  // namespace ducks::st_layout

namespace detail {

// Bytes of a row of a chunk; 0 for naive.
template <class Layout>
constexpr int swizzle_bytes(int row_bytes) {
  if (std::same_as<Layout, ducks::st_layout::swizzle_128>) return 128;
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
                    std::same_as<Layout, ducks::st_layout::swizzle_128> ||
                    std::same_as<Layout, ducks::st_layout::naive>,
                "the layout of a shared tile is ducks::st_layout::swizzle, ::swizzle_128 or "
                "::naive");
  static_assert(Rows > 0 && Rows % kBase == 0 && Cols > 0 && Cols % kBase == 0,
                "a tile's rows and columns must be multiples of 16");

  // One value per column, and one per row.
  using row_vec = sv<T, Cols>;
  using col_vec = sv<T, Rows>;

  static constexpr int swizzle_bytes = detail::swizzle_bytes<Layout>(Cols * sizeof(T));
  static constexpr bool is_swizzled = swizzle_bytes != 0;
  static constexpr int chunk_cols = is_swizzled ? swizzle_bytes / int(sizeof(T)) : Cols;
  static constexpr int chunks = (Cols + chunk_cols - 1) / chunk_cols;
  static constexpr int chunk_elements = Rows * chunk_cols;
  static constexpr int padding_cols = chunks * chunk_cols - Cols;  // of the last chunk

  T data[chunks * chunk_elements];

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

// A swizzled tile and, to its right, columns of ones: group<N>::set_ones(s) sets them, once,
// whatever `tile` holds later. With it as b, warpgroup::mma_AB_row_sums also gives the sums of a's
// rows. It reads eight of the columns. They are a chunk more, over which the swizzle spreads them;
// or, where the tile has padding, the first of that, which copies must leave alone (tma_columns_map
// does).
template <element T, int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
struct st_ones {
  using dtype = T;
  using tile_type = st<T, Rows, Cols, Layout>;
  static constexpr int rows = Rows, cols = Cols;  // of `tile`

  tile_type tile;
  st<T, Rows, tile_type::chunk_cols> ones;
  static_assert(sizeof(tile_type) % alignof(decltype(ones)) == 0, "the ones follow at once");
};
template <element T, int Rows, int Cols, class Layout>
  requires(st<T, Rows, Cols, Layout>::padding_cols >= 8)
struct st_ones<T, Rows, Cols, Layout> {
  using dtype = T;
  using tile_type = st<T, Rows, Cols, Layout>;
  static constexpr int rows = Rows, cols = Cols;  // of `tile`

  tile_type tile;
};

// Some of a swizzled tile's rows, or of one with ones: rows_of<16>(tile, 32) is rows 32 to 47. What
// a product takes as its right side in the tile's place; `first` is a multiple of 8, after which
// the swizzle repeats.
template <class S, int Rows>
struct tile_rows {
  using dtype = typename S::dtype;
  static constexpr int rows = Rows, cols = S::cols;
  static constexpr int swizzle_bytes = S::swizzle_bytes, chunk_cols = S::chunk_cols;
  static constexpr int chunk_elements = S::chunk_elements;  // from a chunk to the next, all rows

  const dtype* data;  // the first of these rows
};
template <element T, int AllRows, int Cols, class Layout, int Rows>
struct tile_rows<st_ones<T, AllRows, Cols, Layout>, Rows> {
  using dtype = T;
  using tile_type = tile_rows<st<T, AllRows, Cols, Layout>, Rows>;
  static constexpr int rows = Rows, cols = Cols;

  tile_type tile;
};

template <int Rows, element T, int AllRows, int Cols, class Layout>
KITTENS_INLINE tile_rows<st<T, AllRows, Cols, Layout>, Rows> rows_of(
    const st<T, AllRows, Cols, Layout>& tile, int first) {
  static_assert(st<T, AllRows, Cols, Layout>::is_swizzled, "rows_of takes a swizzled tile");
  static_assert(Rows % kBase == 0 && Rows <= AllRows, "rows_of: some of the tile's rows, by 16");
  return {tile.data + first * tile.chunk_cols};
}
template <int Rows, element T, int AllRows, int Cols, class Layout>
KITTENS_INLINE tile_rows<st_ones<T, AllRows, Cols, Layout>, Rows> rows_of(
    const st_ones<T, AllRows, Cols, Layout>& tile, int first) {
  return {rows_of<Rows>(tile.tile, first)};
}

template <class S>
inline constexpr bool is_shared_tile = false;
template <class T, int R, int C, class L>
inline constexpr bool is_shared_tile<st<T, R, C, L>> = true;

template <class S>
inline constexpr bool is_tile_with_ones = false;
template <class T, int R, int C, class L>
inline constexpr bool is_tile_with_ones<st_ones<T, R, C, L>> = true;
template <class S, int R>
inline constexpr bool is_tile_with_ones<tile_rows<S, R>> = is_tile_with_ones<S>;

template <class S>
concept shared_tile = is_shared_tile<std::remove_cvref_t<S>>;
template <class Tile>
concept tile = register_tile<Tile> || shared_tile<Tile>;
// What wgmma reads, and TMA.
template <class S>
concept swizzled_tile = shared_tile<S> && std::remove_cvref_t<S>::is_swizzled;
template <class S>
inline constexpr bool is_tile_rows = false;
template <class T, int R, int C, class L, int Rows>
inline constexpr bool is_tile_rows<tile_rows<st<T, R, C, L>, Rows>> = true;
template <class S>
concept right_side_tile = swizzled_tile<S> || is_tile_rows<std::remove_cvref_t<S>>;
template <class S>
concept tile_with_ones = is_tile_with_ones<std::remove_cvref_t<S>>;

KITTENS_IN_ELEMENTS {
  template <int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
  using st_bf = st<bf16, Rows, Cols, Layout>;
  template <int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
  using st_hf = st<half, Rows, Cols, Layout>;
  template <int Rows, int Cols, class Layout = ducks::st_layout::swizzle>
  using st_fl = st<float, Rows, Cols, Layout>;
}  // KITTENS_IN_ELEMENTS

}  // namespace kittens
