// Tiles between global and shared memory by TMA: the hardware moves a tile while the threads go on.
// ONE thread calls each of these functions.
//
// Loads bring tma::bytes<Tile> to a semaphore that expects them (ops/semaphore.cuh):
//
//   expect_bytes(full, tma::bytes<Tile>);
//   tma::load_async(tile, map, full, {b, d, r, c});           anyone: wait(full, phase)
//
// Stores belong to groups of the calling thread:
//
//   warpgroup::store(tile, registers);                        ends with the writers' proxy fence
//   warpgroup::sync(1);
//   if (this is the thread) {
//     tma::store_async(map, tile, {b, d, r, c});
//     tma::store_commit_group();
//     tma::store_async_read_wait<0>();                        before the tile is written again
//   }
//
// A coordinate's r and c count tiles, b and d elements. What lies past the tensor's last row or
// column reads as zero, counts as bytes all the same, and is not written; but stores write whole
// pieces of 16 bytes, so a row whose columns end within one needs padding behind them.
#pragma once

#include <concepts>
#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/tma.cuh"
#include "kittens/types/global_tensor.cuh"
#include "kittens/types/semaphore.cuh"
#include "kittens/types/shared_tile.cuh"
#include "kittens/types/tma_map.cuh"

namespace kittens {

namespace detail {

// f(chunk's index in the tile's data, its four coordinates) for each chunk of columns: one
// instruction moves one chunk.
template <class S, class MapTile, class F>
KITTENS_DEVICE void for_each_chunk(coord at, F f) {
  static_assert(std::same_as<S, MapTile>,
                "TMA moves the tile that the map was made for: tma_map<Tile> of the same type");
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    f(i * S::chunk_elements, static_cast<int>(at.c) * S::cols + i * S::chunk_cols,
      static_cast<int>(at.r) * S::rows, static_cast<int>(at.d), static_cast<int>(at.b));
  }
}

}  // namespace detail

namespace tma {

// Of a tile, or of anything else in shared memory.
template <class Tile>
inline constexpr int bytes = sizeof(Tile);
// Of each row that a map of a tile's first rows copies (types/tma_map.cuh).
template <shared_tile Tile>
inline constexpr int bytes_of_row = bytes<Tile> / Tile::rows;

template <shared_tile S, class M>
KITTENS_DEVICE void load_async(S& dst, const tma_map<M>& src, semaphore& full, coord at) {
  detail::for_each_chunk<S, M>(at, [&](int i, int c, int r, int d, int b) {
    arch::tma_load(&dst.data[i], &src.map, &full.barrier, c, r, d, b);
  });
}

// The same with L2::evict_first: what is read once leaves the L2 to what is read again, such as
// other operands, and code.
template <shared_tile S, class M>
KITTENS_DEVICE void load_async_evict_first(S& dst, const tma_map<M>& src, semaphore& full,
                                           coord at) {
  detail::for_each_chunk<S, M>(at, [&](int i, int c, int r, int d, int b) {
    arch::tma_load_evict_first(&dst.data[i], &src.map, &full.barrier, c, r, d, b);
  });
}

// The rows from `row` on of a sequence (types/tma_map.cuh): load_async(tile, map, full, origin,
// row, head), store_async(map, tile, origin, row, head); of a head's columns, those from `column`.
template <shared_tile S>
KITTENS_DEVICE void load_async(S& dst, const tma_sequence_map<S>& src, semaphore& full,
                               const sequence_origin& at, int row, int head, int column = 0) {
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    arch::tma_load(&dst.data[i * S::chunk_elements], &src.map, &full.barrier,
                   column + i * S::chunk_cols, at.x + row, at.y, head, at.z);
  }
}
// Of the columns that there are alone, of which src.bytes() come.
template <shared_tile S>
KITTENS_DEVICE void load_async(S& dst, const tma_columns_map<S>& src, semaphore& full,
                               const sequence_origin& at, int row, int head) {
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int column = i * S::chunk_cols;
    if (column >= src.columns) return;
    const auto& map = column + S::chunk_cols <= src.columns ? src.whole.map : src.last.map;
    arch::tma_load(&dst.data[i * S::chunk_elements], &map, &full.barrier, column, at.x + row, at.y,
                   head, at.z);
  }
}
template <shared_tile S>
KITTENS_DEVICE void store_async(const tma_sequence_map<S>& dst, const S& src,
                                const sequence_origin& at, int row, int head, int column = 0) {
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    arch::tma_store(&dst.map, &src.data[i * S::chunk_elements], column + i * S::chunk_cols,
                    at.x + row, at.y, head, at.z);
  }
}

// To the same place in each block of the cluster whose bit is set in `blocks`, and to the semaphore
// in the same place there, which must expect the bytes.
template <shared_tile S, class M>
KITTENS_DEVICE void load_async_multicast(S& dst, const tma_map<M>& src, semaphore& full, coord at,
                                         uint16_t blocks) {
  detail::for_each_chunk<S, M>(at, [&](int i, int c, int r, int d, int b) {
    arch::tma_load_multicast(&dst.data[i], &src.map, &full.barrier, blocks, c, r, d, b);
  });
}

template <class M, shared_tile S>
KITTENS_DEVICE void store_async(const tma_map<M>& dst, const S& src, coord at) {
  detail::for_each_chunk<S, M>(at, [&](int i, int c, int r, int d, int b) {
    arch::tma_store(&dst.map, &src.data[i], c, r, d, b);
  });
}

// dst += src, each element by itself and rounded to the tensor's type; the order of the additions
// from several tiles is any.
template <class M, shared_tile S>
KITTENS_DEVICE void store_add_async(const tma_map<M>& dst, const S& src, coord at) {
  detail::for_each_chunk<S, M>(at, [&](int i, int c, int r, int d, int b) {
    arch::tma_store_add(&dst.map, &src.data[i], c, r, d, b);
  });
}

// Closes the calling thread's group of stores.
KITTENS_DEVICE void store_commit_group() { arch::bulk_commit(); }
// Until at most `Groups` of its latest groups are under way, and the others in global memory …
template <int Groups = 0>
KITTENS_DEVICE void store_async_wait() {
  arch::bulk_wait<Groups>();
}
// … or have at least read their shared memory. A block must not end before its tiles are read.
template <int Groups = 0>
KITTENS_DEVICE void store_async_read_wait() {
  arch::bulk_wait_read<Groups>();
}

// Into the L2 cache: a tile that will be loaded soon, or the map itself.
template <shared_tile S>
KITTENS_DEVICE void prefetch(const tma_map<S>& src, coord at) {
  detail::for_each_chunk<S, S>(
      at, [&](int, int c, int r, int d, int b) { arch::tma_prefetch(&src.map, c, r, d, b); });
}
template <shared_tile S>
KITTENS_DEVICE void prefetch_map(const tma_map<S>& src) {
  arch::tma_prefetch_map(&src.map);
}

}  // namespace tma
}  // namespace kittens
