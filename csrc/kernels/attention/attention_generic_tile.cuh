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
  KITTENS_DEVICE attention_rows from(int row) const {
    return {at(row, 0), stride, count - row, width};
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

// Calls f(row, col) for each 16 bytes of a tile that are this thread's. Of eight neighbouring
// threads none has the banks of another, in chunks of 64 bytes either.
template <class Tile, int Threads, class F>
KITTENS_DEVICE void for_each_piece(int thread, F f) {
  constexpr int kElements = 16 / sizeof(typename Tile::dtype),
                kPieces = Tile::chunk_cols / kElements;
  static_assert(Tile::num_elements % (kElements * Threads) == 0, "each thread has as many");
#pragma unroll
  for (int first = 0; first < Tile::num_elements / kElements; first += Threads) {
    const unsigned n = static_cast<unsigned>(first + thread);
    const unsigned chunk = n / (kPieces * Tile::rows);
    f(n / kPieces % Tile::rows, chunk * Tile::chunk_cols + n % kPieces * kElements);
  }
}

// Starts the copies of a tile.
template <int Threads, class Tile, class T>
KITTENS_DEVICE void load_rows(Tile& dst, const attention_rows<T>& src) {
  for_each_piece<Tile, Threads>(arch::thread_id() % Threads, [&](int row, int col) {
    const bool there = src.has(row, col);
    arch::cp_async<16>(&dst(row, col), there ? src.at(row, col) : src.data, there);
  });
}

// A tile, once all have written it. (By another expression for the thread's number than load_rows
// has, or the compiler keeps what it has computed there in registers until here: up to 40.)
template <int Threads, class T, class Tile>
KITTENS_DEVICE void store_rows(const attention_rows<T>& dst, const Tile& src) {
  const int thread = arch::warp_id() % (Threads / kWarp) * kWarp + arch::lane_id();
  for_each_piece<Tile, Threads>(thread, [&](int row, int col) {
    if (!dst.has(row, col)) return;
    const uint4 piece = arch::load_shared(reinterpret_cast<const uint4*>(&src(row, col)));
    arch::store_global(reinterpret_cast<uint4*>(dst.at(row, col)), piece);
  });
}

using fragment = uint32_t[4];  // 16 × 16: a product's left side, or its right side's columns

// Where this lane points at, for the first fragment of a tile, or of its transpose.
template <bool Transposed, class Tile>
KITTENS_DEVICE int fragment_index() {
  using layout = std::conditional_t<Transposed, ducks::rt_layout::col, ducks::rt_layout::row>;
  return detail::matrix_row<rt<typename Tile::dtype, kBase, kBase, layout>, Tile>(arch::lane_id());
}
// The one `row` rows and `col` columns further.
template <bool Transposed, class Tile>
KITTENS_DEVICE void load_fragment(fragment& to, const Tile& tile, int first, int row, int col) {
  arch::load_matrix<Transposed>(to, &tile.data[detail::moved_index<Tile>(first, row, col)]);
}

// Columns 16 · n and on of d += left · right. `right` is what lanes load of a tile whose rows are
// the columns of the product, or of the transpose of one whose columns are.
template <class T, class D>
KITTENS_DEVICE void multiply(D& d, int n, const fragment& left, const fragment& right) {
  float (&sums)[4] = *reinterpret_cast<float (*)[4]>(&d.data[0][8 * n]);
  float (&next)[4] = *reinterpret_cast<float (*)[4]>(&d.data[0][8 * n + 4]);
  arch::mma_m16n8k16<T>(sums, left, {right[0], right[2]}, sums);
  arch::mma_m16n8k16<T>(next, left, {right[1], right[3]}, next);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
