// linear attention: how the generic kernel's chunks come into shared memory, by cp.async.
// (linear_attention_generic.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_generic_tile.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// What a thread copies of one chunk after the other: of one row every fourth piece of 16 bytes. So
// it has one address, which goes on from chunk to chunk.
template <class Tile>
class chunk_copies {
  using T = typename Tile::dtype;
  static constexpr int kElements = 16 / sizeof(T), kLanes = 4;  // that share a row
  static constexpr int kStep = kLanes * kElements;              // columns

 public:
  // From the chunk that begins at `token` of the stream's sequence, columns `column` and on.
  KITTENS_DEVICE chunk_copies(const generic_operand<T>& from, const chunk_stream& s, int token,
                              int column = 0)
      : at(from.of(s) + (token + row()) * from.strides.token + column + first_column()) {}

  // Starts the copies of the next chunk, of which there are so many tokens and columns, or more;
  // the rest is zeros.
  KITTENS_DEVICE void start(Tile& tile, int64_t stride, int rows, int columns, bool reverse) {
    const int index = Tile::index(row(), first_column());
    const bool there = row() < rows;
#pragma unroll
    for (int col = 0; col < Tile::cols; col += kStep) {
      arch::cp_async<16>(&tile.data[detail::moved_index<Tile>(index, 0, col)], at + col,
                         there && first_column() + col < columns);
    }
    const int64_t chunk = Tile::rows * stride;
    at += reverse ? -chunk : chunk;
  }

 private:
  // Of eight neighbouring threads, which have two rows, none has the banks of another.
  KITTENS_DEVICE static int row() {
    const int n = static_cast<int>(static_cast<unsigned>(arch::thread_id()) / kLanes);
    return n / 8 * 8 + n % 2 * 4 + n / 2 % 4;
  }
  KITTENS_DEVICE static int first_column() {
    return static_cast<int>(static_cast<unsigned>(arch::thread_id()) % kLanes) * kElements;
  }

  const T* at;
};

// Of the pieces of 16 bytes that make 16 columns of a tile, those of a lane of a warp: one, and the
// next ones 16 rows further. Of eight neighbouring lanes none has the banks of another.
template <class Tile>
struct lane_pieces {
  static constexpr int kRows = 16;  // from one to the next
  int row, column;                  // of the first one

  KITTENS_DEVICE explicit lane_pieces(int first_column) {
    const int lane = arch::lane_id();
    row = lane / 2 % 4 * 2 + lane / 8 % 2 + lane / 16 * 8;
    column = first_column + lane % 2 * 8;
  }
  KITTENS_DEVICE typename Tile::dtype* at(Tile& tile, int rows) const {
    return &tile.data[detail::moved_index<Tile>(Tile::index(row, column), rows, 0)];
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
