// Tiles by their counts of base tiles, as the literature names them: rt_bf_1x4<layout> is 16 × 64.
#pragma once

#include "kittens/types/register_tile.cuh"
#include "kittens/types/shared_tile.cuh"

namespace kittens {

// clang-format off
#define KITTENS_TILES(rows, cols)                                                    \
  template <class Layout = ducks::rt_layout::row>                                    \
  using rt_bf_##rows##x##cols = rt<bf16, rows * kBase, cols * kBase, Layout>;        \
  template <class Layout = ducks::rt_layout::row>                                    \
  using rt_hf_##rows##x##cols = rt<half, rows * kBase, cols * kBase, Layout>;        \
  template <class Layout = ducks::rt_layout::row>                                    \
  using rt_fl_##rows##x##cols = rt<float, rows * kBase, cols * kBase, Layout>;       \
  template <class Layout = ducks::st_layout::swizzle>                                \
  using st_bf_##rows##x##cols = st<bf16, rows * kBase, cols * kBase, Layout>;        \
  template <class Layout = ducks::st_layout::swizzle>                                \
  using st_hf_##rows##x##cols = st<half, rows * kBase, cols * kBase, Layout>;        \
  template <class Layout = ducks::st_layout::swizzle>                                \
  using st_fl_##rows##x##cols = st<float, rows * kBase, cols * kBase, Layout>;
#define KITTENS_TILES_OF_ROWS(rows) \
  KITTENS_TILES(rows, 1)            \
  KITTENS_TILES(rows, 2)            \
  KITTENS_TILES(rows, 4)            \
  KITTENS_TILES(rows, 8)
KITTENS_TILES_OF_ROWS(1)
KITTENS_TILES_OF_ROWS(2)
KITTENS_TILES_OF_ROWS(4)
KITTENS_TILES_OF_ROWS(8)
// clang-format on
#undef KITTENS_TILES_OF_ROWS
#undef KITTENS_TILES

}  // namespace kittens
