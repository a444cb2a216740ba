// rt: a tile held in the registers of one warp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/dtype.cuh"
#include "kittens/types/register_vector.cuh"
#include "kittens/types/tile_sizes.cuh"

namespace kittens {

inline constexpr int kBase = 16;  // rows and columns of a base tile

// Which lane holds what. A tile is made of 16 × 16 base tiles, of which each lane holds four pairs.
// In row layout a pair is two neighbours of a row, as the tensor cores want their accumulators and
// their first operand (PTX ISA, mma.m16n8k16 and wgmma, matrix fragments):
//
//             column  0 1    2 3    4 5    6 7  |  8 9   10 11  12 13  14 15
//   row 0       lane   0      1      2      3   |   0      1      2      3
//   row 1              4      5      6      7   |   4      5      6      7
//    …                        pair 0            |          pair 2
//   row 7             28     29     30     31   |  28     29     30     31
//   --------------------------------------------+--------------------------
//   row 8              0      1      2      3   |   0      1      2      3
//    …                        pair 1            |          pair 3
//   row 15            28     29     30     31   |  28     29     30     31
//
// Column layout is the same with rows and columns exchanged: a pair is two neighbours of a column,
// as mma.sync wants its second operand.
namespace ducks::rt_layout {
struct row {};
struct col {};
}  // namespace ducks::rt_layout

template <element T, int Rows, int Cols, class Layout = ducks::rt_layout::row>
struct rt {
  using dtype = T;
  using layout = Layout;
  static constexpr int rows = Rows, cols = Cols, num_elements = Rows * Cols;
  static constexpr bool is_row = std::same_as<Layout, ducks::rt_layout::row>;
  static_assert(is_row || std::same_as<Layout, ducks::rt_layout::col>,
                "the layout of a register tile is ducks::rt_layout::row or ::col");
  static_assert(Rows > 0 && Rows % kBase == 0 && Cols > 0 && Cols % kBase == 0,
                "a tile's rows and columns must be multiples of 16");

  // One value per column, and one per row, where the tile's lanes want them.
  using row_vec =
      rv<T, Cols, std::conditional_t<is_row, ducks::rv_layout::align, ducks::rv_layout::ortho>>;
  using col_vec =
      rv<T, Rows, std::conditional_t<is_row, ducks::rv_layout::ortho, ducks::rv_layout::align>>;

  // Lines of base tiles: lines along the rows in row layout, along the columns in column layout.
  static constexpr int lines = (is_row ? Rows : Cols) / kBase;
  static constexpr int line_tiles = (is_row ? Cols : Rows) / kBase;  // base tiles of a line
  static constexpr int kPairs = 4;                                   // of a lane, in a base tile
  static constexpr bool kPacked = sizeof(T) == 2;
  using word = std::conditional_t<kPacked, uint32_t, T>;
  static constexpr int kPairWords = kPacked ? 1 : 2;

  // data[line] holds the pairs of the line's base tiles, one tile after the other. So data[0] of a
  // float tile with 16 rows is what wgmma accumulates into, and data[0] + 4·k of a 16-bit one is
  // the fragment number k of the operand that it reads from registers.
  word data[lines][line_tiles * kPairs * kPairWords];

  // Pair p of base tile t of a line.
  KITTENS_DEVICE void get(float& x, float& y, int line, int t, int p) const {
    if constexpr (kPacked) {
      unpack<T>(x, y, data[line][t * kPairs + p]);
    } else {
      x = data[line][(t * kPairs + p) * 2];
      y = data[line][(t * kPairs + p) * 2 + 1];
    }
  }
  KITTENS_DEVICE void set(int line, int t, int p, float x, float y) {
    if constexpr (kPacked) {
      data[line][t * kPairs + p] = pack<T>(x, y);
    } else {
      data[line][(t * kPairs + p) * 2] = x;
      data[line][(t * kPairs + p) * 2 + 1] = y;
    }
  }

  // Where the first element of a pair is: `across` the lines, and `along` its line, where the
  // second one follows. In row layout, across is the row and along the column.
  KITTENS_INLINE static constexpr int across(int line, int p, int lane) {
    return line * kBase + p % 2 * 8 + lane / 4;
  }
  KITTENS_INLINE static constexpr int along(int t, int p, int lane) {
    return t * kBase + p / 2 * 8 + lane % 4 * 2;
  }
};

template <class R>
inline constexpr bool is_register_tile = false;
template <class T, int R, int C, class L>
inline constexpr bool is_register_tile<rt<T, R, C, L>> = true;

template <class R>
concept register_tile = is_register_tile<std::remove_cvref_t<R>>;
template <class R>
concept row_layout_tile = register_tile<R> && std::remove_cvref_t<R>::is_row;
template <class R>
concept col_layout_tile = register_tile<R> && !std::remove_cvref_t<R>::is_row;

// Two tiles whose elements lie in the same lanes; the element types may differ.
template <class A, class B>
concept same_tile_layout =
    register_tile<A> && register_tile<B> &&
    std::remove_cvref_t<A>::rows == std::remove_cvref_t<B>::rows &&
    std::remove_cvref_t<A>::cols == std::remove_cvref_t<B>::cols &&
    std::same_as<typename std::remove_cvref_t<A>::layout, typename std::remove_cvref_t<B>::layout>;

KITTENS_IN_ELEMENTS {
  template <int Rows, int Cols, class Layout = ducks::rt_layout::row>
  using rt_bf = rt<bf16, Rows, Cols, Layout>;
  template <int Rows, int Cols, class Layout = ducks::rt_layout::row>
  using rt_hf = rt<half, Rows, Cols, Layout>;
  template <int Rows, int Cols, class Layout = ducks::rt_layout::row>
  using rt_fl = rt<float, Rows, Cols, Layout>;
}  // KITTENS_IN_ELEMENTS

}  // namespace kittens
