// linear attention: how the generic kernel's chunks come into shared memory, by cp.async.
// (linear_attention_generic.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_generic_tile.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// What a thread copies of one chunk after the other: pieces of 16 bytes, always the same places of
// a tile. Its address goes on from chunk to chunk, for a new one costs about as many instructions
// as all of a chunk's copies.
template <class Tile, int Threads>
class chunk_copies {
  using T = typename Tile::dtype;
  static constexpr int kElements = 16 / sizeof(T), kOfRow = Tile::chunk_cols / kElements;
  static constexpr int kStep = Threads / kOfRow;  // rows
  static_assert(Threads % kOfRow == 0 && Tile::rows % kStep == 0, "each thread has as many");

 public:
  // From the chunk that begins at `token` of the stream's sequence, columns `column` and on.
  KITTENS_DEVICE chunk_copies(const generic_operand<T>& from, const chunk_stream& s, int token,
                              int column = 0)
      : at(from.of(s) + (token + first_row()) * from.strides.token + column + first_column()) {}

  // Starts the copies of the next chunk, of which there are so many tokens and columns, or more;
  // the rest is zeros.
  KITTENS_DEVICE void start(Tile& tile, int64_t stride, int rows, int columns, bool reverse) {
    const int index = Tile::index(first_row(), first_column());
#pragma unroll
    for (int col = 0; col < Tile::cols; col += Tile::chunk_cols) {
      const bool has_columns = first_column() + col < columns;
#pragma unroll
      for (int row = 0; row < Tile::rows; row += kStep) {
        arch::cp_async<16>(&tile.data[detail::moved_index<Tile>(index, row, col)],
                           at + row * stride + col,
                           has_columns && first_row() + row < rows);
      }
    }
    const int64_t chunk = Tile::rows * stride;
    at += reverse ? -chunk : chunk;
  }

 private:
  KITTENS_DEVICE static int first_row() {
    return static_cast<int>(static_cast<unsigned>(arch::thread_id()) / kOfRow);
  }
  KITTENS_DEVICE static int first_column() {
    return static_cast<int>(static_cast<unsigned>(arch::thread_id()) % kOfRow) * kElements;
  }

  const T* at;
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
