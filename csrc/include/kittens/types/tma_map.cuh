// tma_map: how TMA finds tiles of one type in a tensor. Made on the host, passed to the kernel by
// value in a __grid_constant__ parameter, alone or in a struct.
//
//   using tile = st_bf<128, 64>;
//   struct params { tma_map<tile> x; };
//   const auto x_map = tma_map<tile>::of(gl<bf16>::matrix(x, rows, cols, row_stride));
//   launch(kernel, config, stream, params{x_map});
//
// The tensor's rows, and its data, start at multiples of 16 bytes.
#pragma once

#include <concepts>

#include "kittens/arch/tma.cuh"
#include "kittens/host/tensor_map.cuh"
#include "kittens/types/global_tensor.cuh"
#include "kittens/types/shared_tile.cuh"

namespace kittens {

template <shared_tile Tile>
struct tma_map {
  using tile = Tile;
  static_assert(Tile::is_swizzled, "TMA moves swizzled tiles: st<T, rows, cols>");
  static_assert(Tile::rows <= 256, "TMA moves tiles of up to 256 rows");

  arch::tensor_map map;

  // Throws host::error when the hardware cannot take the tensor, and says why.
  template <global_tensor G>
  static tma_map of(const G& tensor) {
    using T = typename Tile::dtype;
    static_assert(std::same_as<typename G::dtype, T>,
                  "TMA does not convert: tensor and tile must hold the same type");
    constexpr int64_t kBytes = sizeof(T);
    const host::tensor_map_request request{
        .data = tensor.data,
        .kind = host::dtype_of<T>,
        .rank = 4,
        .extent = {tensor.cols, tensor.rows, tensor.depth, tensor.batch},
        .stride_bytes = {tensor.row_stride * kBytes, tensor.depth_stride * kBytes,
                         tensor.batch_stride * kBytes},
        .box = {Tile::chunk_cols, Tile::rows, 1, 1},
        .swizzle_bytes = Tile::swizzle_bytes};
    return {host::encode_tensor_map(request)};
  }
};

}  // namespace kittens
