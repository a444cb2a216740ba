// attention: what the generic kernels have in common, forward and backward. Rows of tensors, their
// way into shared memory by cp.async and back, and products of mma.sync whose operands ldmatrix
// reads there. (attention_generic.cuh, attention_backward_generic.cuh)
//
// Shared memory is swizzled (types/shared_tile.cuh): copies and ldmatrix have no bank conflicts.
// Behind a tensor's last row and column the copies write zeros and read nothing.
#pragma once

#include <kittens.cuh>

#include <type_traits>

#include "thunderkittens/kernels/attention.h"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

// Some rows of a tensor: what there is of them.
template <class T>
struct attention_rows {
  T* data;         // the first one
  int64_t stride;  // in elements
  int count, width;

  KITTENS_DEVICE bool has(int row, int col) const { return row < count && col < width; }
  KITTENS_DEVICE T* at(int row, int col) const { return data + row * stride + col; }
  KITTENS_DEVICE attention_rows from(int row, int col = 0) const {
    return {at(row, col), stride, count - row, width - col};
  }
};

// Where those of all heads and batches are.
template <class T>
struct attention_operand {
  T* data;
  attention_strides strides;
  int width;

  KITTENS_DEVICE attention_rows<T> rows(int batch, int head, int first, int count) const {
    return {data + batch * strides.batch + head * strides.head + first * strides.row, strides.row,
            count, width};
  }
};

// How threads share the pieces of 16 bytes of a tile: a thread stays in its place in the chunks'
// rows, and goes down by `step` of them. Of eight neighbouring threads none has the banks of
// another, in chunks of 64 bytes either.
template <class Tile, int Threads>
struct attention_pieces {
  static constexpr int elements = 16 / sizeof(typename Tile::dtype);
  static constexpr int of_a_row = Tile::chunk_cols / elements, step = Threads / of_a_row;
  static_assert(Threads % of_a_row == 0 && Tile::rows % step == 0, "each thread has as many");

  int row, col, index;  // of the thread's first one

  KITTENS_DEVICE explicit attention_pieces(int thread)
      : row(static_cast<int>(static_cast<unsigned>(thread) / of_a_row)),
        col(static_cast<int>(static_cast<unsigned>(thread) % of_a_row) * elements),
        index(Tile::index(row, col)) {}

  // Calls f(rows, cols, index): how far down and to the right, and where in the tile.
  template <class F>
  KITTENS_DEVICE void for_each(F f) const {
#pragma unroll
    for (int rows = 0; rows < Tile::rows; rows += step) {
#pragma unroll
      for (int cols = 0; cols < Tile::cols; cols += Tile::chunk_cols) {
        f(rows, cols, detail::moved_index<Tile>(index, rows, cols));
      }
    }
  }
};

// Starts the copies of a tile.
template <int Threads, class Tile, class T>
KITTENS_DEVICE void load_rows(Tile& dst, const attention_rows<T>& src) {
  const attention_pieces<Tile, Threads> mine(arch::thread_id() % Threads);
  const attention_rows<T> from = src.from(mine.row, mine.col);
  mine.for_each([&](int rows, int cols, int index) {
    arch::cp_async<16>(&dst.data[index], from.at(rows, cols), from.has(rows, cols));
  });
}
// The same, where either all rows are there, or none: then zeros, without a branch.
template <int Threads, class Tile, class T>
KITTENS_DEVICE void load_all_rows(Tile& dst, const attention_rows<T>& src, bool there) {
  const attention_pieces<Tile, Threads> mine(arch::thread_id() % Threads);
  const attention_rows<T> from = src.from(mine.row, mine.col);
  mine.for_each([&](int rows, int cols, int index) {
    arch::cp_async<16>(&dst.data[index], from.at(rows, cols), there && cols < from.width);
  });
}

// A tile, once all have written it. (By another expression for the thread's number than load_rows
// has, or the compiler keeps what it has computed there in registers until here: up to 40.)
template <int Threads, class T, class Tile>
KITTENS_DEVICE void store_rows(const attention_rows<T>& dst, const Tile& src) {
  const int thread = arch::warp_id() % (Threads / kWarp) * kWarp + arch::lane_id();
  const attention_pieces<Tile, Threads> mine(thread);
  mine.for_each([&](int rows, int cols, int index) {
    if (!dst.has(mine.row + rows, mine.col + cols)) return;
    const uint4 piece = arch::load_shared(reinterpret_cast<const uint4*>(&src.data[index]));
    arch::store_global(reinterpret_cast<uint4*>(dst.at(mine.row + rows, mine.col + cols)), piece);
  });
}

using fragment = uint32_t[4];  // 16 × 16: a product's left side, or its right side's columns

// Where this lane points at, for the first fragment of a tile, or of its transpose, on the left …
template <bool Transposed, class Tile>
KITTENS_DEVICE int left_index() {
  using layout = std::conditional_t<Transposed, ducks::rt_layout::col, ducks::rt_layout::row>;
  return detail::matrix_row<rt<typename Tile::dtype, kBase, kBase, layout>, Tile>(arch::lane_id());
}
// … and on the right. There the second and third of the four matrices change places: mma.sync takes
// two registers that are neighbours, ldmatrix fills four, and else each fragment costs four moves.
template <bool Transposed, class Tile>
KITTENS_DEVICE int right_index() {
  return left_index<!Transposed, Tile>();
}
// The one `row` rows and `col` columns further.
template <bool Transposed, class Tile>
KITTENS_DEVICE void load_fragment(fragment& to, const Tile& tile, int first, int row, int col) {
  arch::load_matrix<Transposed>(to, &tile.data[detail::moved_index<Tile>(first, row, col)]);
}

// Rows 16 · m and on, columns 16 · n and on, of d += left · right. `right` is what lanes load of a
// tile whose rows are the columns of the product, or of the transpose of one whose columns are.
template <class T, class D>
KITTENS_DEVICE void multiply(D& d, int m, int n, const fragment& left, const fragment& right) {
  float (&sums)[4] = *reinterpret_cast<float (*)[4]>(&d.data[m][8 * n]);
  float (&next)[4] = *reinterpret_cast<float (*)[4]>(&d.data[m][8 * n + 4]);
  arch::mma_m16n8k16<T>(sums, left, {right[0], right[1]}, sums);
  arch::mma_m16n8k16<T>(next, left, {right[2], right[3]}, next);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
