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
  static_assert(Tile::padding_cols == 0,
                "a tile with padding is a tensor's only one in a row: tma_sequence_map");

  arch::tensor_map map;

  // Throws host::error when the hardware cannot take the tensor, and says why.
  template <global_tensor G>
  static tma_map of(const G& tensor) {
    return of_first_rows(tensor, Tile::rows);
  }
  // `tiles` tiles are copied at once, which lie one below the other in the tensor, and one behind
  // the other in shared memory, as in an array: to its first one, and tma::bytes of each arrive.
  // Fewer and larger copies: 2 KB a copy 4.1 TB/s from an H200's L2, 4 KB 4.7 (linear).
  template <global_tensor G>
  static tma_map of_tiles(const G& tensor, int tiles) {
    static_assert(Tile::chunks == 1 && Tile::rows % 8 == 0, "rows lie one behind the other");
    return of_first_rows(tensor, tiles * Tile::rows);
  }
  // Of a tile's rows the first are copied, and tma::bytes_of_row each is what arrives; the others
  // stay as they are.
  template <global_tensor G>
  static tma_map of_first_rows(const G& tensor, int rows) {
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
        .box = {Tile::chunk_cols, rows, 1, 1},
        .swizzle_bytes = Tile::swizzle_bytes};
    return {host::encode_tensor_map(request)};
  }
};

// tma_sequence_map: how TMA finds tiles of rows of one sequence, of tensors [batch, rows, heads,
// cols], or of sequences of any lengths that are packed one behind the other, [total rows, heads,
// cols]. What lies past the sequence's end does not exist: it reads as zero, and is not written.
//
// TMA knows the tensor's end, not that of each sequence. So row r of a packed sequence of n rows
// that starts at row s has the coordinates x = F − n + r, y = s + n, z = F of a tensor whose
// dimension x ends at F; the strides of x and y are a row, and that of z is 2³⁴ bytes less a row.
// With F = 2³⁰ the address, modulo 2⁶⁴, is that of row s + r.
struct sequence_origin {
  int x, y, z;  // of row 0

  static constexpr int kFar = 1 << 30;
  static constexpr int64_t kFarStride = int64_t{1} << 34;  // bytes; rows are less far apart

  // The sequence number `batch` of a tensor.
  KITTENS_INLINE static sequence_origin of(int batch) { return {0, 0, batch}; }
  // The packed sequence of `length` rows from `start` on.
  KITTENS_INLINE static sequence_origin packed(int start, int length) {
    return {kFar - length, start + length, kFar};
  }
};

template <shared_tile Tile>
struct tma_columns_map;

template <shared_tile Tile>
struct tma_sequence_map {
  using tile = Tile;
  static_assert(Tile::is_swizzled, "TMA moves swizzled tiles: st<T, rows, cols>");
  static_assert(Tile::rows <= 256, "TMA moves tiles of up to 256 rows");

  arch::tensor_map map;

  // Views [batch, heads, rows, cols]; of packed sequences, batch is 1. They throw host::error when
  // the hardware cannot take the tensor, and say why.
  template <global_tensor G>
  static tma_sequence_map of(const G& tensor) {
    return of_first_columns(tensor, Tile::chunk_cols);
  }
  template <global_tensor G>
  static tma_sequence_map of_packed(const G& tensor) {
    return of_first_columns_packed(tensor, Tile::chunk_cols);
  }

 private:
  friend tma_columns_map<Tile>;
  static constexpr int64_t kBytes = sizeof(typename Tile::dtype);

  // Whose copies move the first `columns` of a chunk.
  template <class G>
  static tma_sequence_map of_first_columns(const G& tensor, int columns) {
    return encode(tensor, {tensor.rows, 1, tensor.batch}, {0, tensor.batch_stride * kBytes},
                  columns);
  }
  template <class G>
  static tma_sequence_map of_first_columns_packed(const G& tensor, int columns) {
    const int64_t row_bytes = tensor.row_stride * kBytes;
    return encode(tensor,
                  {sequence_origin::kFar, tensor.rows + 1, int64_t{sequence_origin::kFar} + 1},
                  {row_bytes, sequence_origin::kFarStride - row_bytes}, columns);
  }

  // extent: of x, y and z; stride: of y and z, in bytes.
  template <class G>
  static tma_sequence_map encode(const G& tensor, const int64_t (&extent)[3],
                                 const int64_t (&stride)[2], int columns) {
    using T = typename Tile::dtype;
    static_assert(std::same_as<typename G::dtype, T>,
                  "TMA does not convert: tensor and tile must hold the same type");
    if constexpr (Tile::padding_cols > 0) host::check_columns(Tile::cols, tensor.cols);
    const host::tensor_map_request request{
        .data = tensor.data,
        .kind = host::dtype_of<T>,
        .rank = 5,
        .extent = {tensor.cols, extent[0], extent[1], tensor.depth, extent[2]},
        .stride_bytes = {tensor.row_stride * kBytes, stride[0], tensor.depth_stride * kBytes,
                         stride[1]},
        .box = {columns, Tile::rows, 1, 1, 1},
        .swizzle_bytes = Tile::swizzle_bytes};
    return {host::encode_tensor_map(request)};
  }
};

// tma_columns_map: the same, of the columns that there are alone. A load brings bytes() of them,
// and leaves the tile's others as they are: whoever reads those sets them first (fill_columns).
// TMA takes longer for columns that lie outside of a tensor than for those that it reads
// (benchmarks/attention.md, "Head dimensions between").
template <shared_tile Tile>
struct tma_columns_map {
  using tile = Tile;

  tma_sequence_map<Tile> whole, last;  // of chunks that are full, and of the one that is not
  int columns;                         // of the tensor, up to the end of a piece of 16 bytes

  template <global_tensor G>
  static tma_columns_map of(const G& tensor) {
    return make(tensor, [&](int n) { return whole_type::of_first_columns(tensor, n); });
  }
  template <global_tensor G>
  static tma_columns_map of_packed(const G& tensor) {
    return make(tensor, [&](int n) { return whole_type::of_first_columns_packed(tensor, n); });
  }
  KITTENS_INLINE int bytes() const {
    return columns * Tile::rows * static_cast<int>(sizeof(typename Tile::dtype));
  }

 private:
  using whole_type = tma_sequence_map<Tile>;

  template <class G, class Encode>
  static tma_columns_map make(const G& tensor, Encode encode) {
    constexpr int kPiece = 16 / sizeof(typename Tile::dtype);
    const int64_t there = (tensor.cols + kPiece - 1) / kPiece * kPiece;
    const int columns = there < Tile::cols ? static_cast<int>(there) : Tile::cols;
    const int in_last = columns % Tile::chunk_cols;
    tma_columns_map map{.columns = columns};
    if (columns >= Tile::chunk_cols) map.whole = encode(Tile::chunk_cols);
    if (in_last > 0) map.last = encode(in_last);
    return map;
  }
};

}  // namespace kittens
