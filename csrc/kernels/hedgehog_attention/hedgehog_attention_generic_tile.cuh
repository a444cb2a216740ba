// hedgehog attention on every architecture: a configuration of the forward, its shared memory and
// tensors, and how tiles of tokens come and are read. (hedgehog_attention_generic.cuh)
#pragma once

#include <type_traits>

#include "kernels/hedgehog_attention/hedgehog_attention_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// Outputs: else the states at the ends of segments alone.
template <class T, bool Outputs>
struct hedgehog_generic_config {
  using type = T;
  static constexpr bool outputs = Outputs;
  static constexpr int warps = 8, threads = warps * kWarp;
  static constexpr int slices = 4;  // of a map's columns, 16 each: a warp's
  // Rows of the keys, or the queries, of which a warp has the logits in its slice.
  static constexpr int logit_rows = Outputs ? kBlock : kBlock / 2;

  using token_tile = st<T, kBlock, kWidth>;  // of q, k and v; features; and weights
  using map_tile = st<T, kWidth, kHalf>;
  using square = st<T, kBlock, kHalf>;  // half the columns of a tile of tokens
};

// A tensor [B, S, H, head_dim or value_dim], of which threads copy pieces of 16 bytes.
template <class T>
struct token_rows {
  const T* data;
  hedgehog_attention_strides strides;
  int columns;
};
template <class T>
struct hedgehog_generic_arguments : forward_arguments {
  token_rows<T> q, k, v;
  const T *q_map, *k_map;  // [H, head_dim, 64]
  T* y;                    // [B, S, H, value_dim]
};

// Where a head's first row is in each tensor: of k and v, that before the first query. In shared
// memory, for in registers they are more than there is room for.
template <class T>
struct places_of_head {
  const T *q, *k, *v;
  T* y;

  KITTENS_DEVICE void set(const hedgehog_generic_arguments<T>& p, const block_stream& s) {
    const auto placed = [&](const token_rows<T>& of, int row) {
      return of.data + s.batch * of.strides.batch + s.head * of.strides.head +
             row * of.strides.token;
    };
    q = placed(p.q, 0);
    k = placed(p.k, -p.missing);
    v = placed(p.v, -p.missing);
    y = p.y + (int64_t{s.batch} * p.length * p.heads + s.head) * p.value_dim;
  }
};

// Of some of a row's scores or logits: the largest, to log₂, and Σ exp relative to it.
struct softmax_part {
  float largest, sum;
};

// A map's four slices, of each row and softmax.
using slice_parts = softmax_part[2][kBlock][4];

template <class Config>
struct generic_states_shared {
  static constexpr int kBlocks = Config::outputs ? 3 : 2;
  // Of keys, one after the other: the two of a window, the first of which then makes room for its
  // features; and between them and the next, weights [queries, keys], half of the window each.
  typename Config::token_tile keys[kBlocks];
  typename Config::token_tile values;
  slice_parts of_keys;
  sv<float, kWidth> sums[4];  // Σ φ(k), of every fourth row each
  block_stream stream;
  places_of_head<typename Config::type> places;
};
template <class Config>
struct generic_outputs_shared : generic_states_shared<Config> {
  typename Config::token_tile queries;  // and then their features
  slice_parts of_queries;
  softmax_part of_window[kBlock][2];  // of each half
  sv<float, kBlock> linear[4];        // Σ φ(q) ∘ sums, of each slice
  sv<float, kBlock> reciprocals;      // of denominators
};
template <class Config>
using hedgehog_attention_generic_shared =
    std::conditional_t<Config::outputs, generic_outputs_shared<Config>,
                       generic_states_shared<Config>>;

// Starts the copies of a tile's rows, from row `first` of a head on; zeros where there is none, and
// from column `columns` on.
template <int Threads, class Tile, class T>
KITTENS_DEVICE void request_rows(Tile& tile, const T* head, int64_t stride, int columns, int first,
                                 int begin, int end) {
  constexpr int kElements = 16 / sizeof(T), kLanes = Tile::cols / kElements;  // of a row
  const int thread = arch::thread_id();
  const int row = static_cast<int>(static_cast<unsigned>(thread) / kLanes);
  const int column = static_cast<int>(static_cast<unsigned>(thread) % kLanes) * kElements;
  const int index = Tile::index(row, column);
  if (column >= columns) end = begin;
  const T* const from = head + (first + row) * stride + column;
#pragma unroll
  for (int i = 0; i < Tile::rows; i += Threads / kLanes) {
    const int place = first + row + i;
    arch::cp_async<16>(&tile.data[detail::moved_index<Tile>(index, i, 0)], from + i * stride,
                       place >= begin && place < end);
  }
}

// 16 rows and columns of a tile as a product's left side, from `row` and `column` on; Transposed:
// of its transpose.
template <bool Transposed, class Tile>
KITTENS_DEVICE void load_left(uint32_t* words, const Tile& tile, int row, int column) {
  const int lane = arch::lane_id(), first = lane / 8 % 2 * 8, second = lane / 16 * 8;
  uint32_t loaded[4];
  arch::load_matrix<Transposed>(loaded, &tile(row + (Transposed ? second : first) + lane % 8,
                                              column + (Transposed ? first : second)));
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = loaded[i];
}

// 16 columns of a tile, from `column` on.
template <int Columns, class T, int Rows, class Tile>
KITTENS_DEVICE void store_columns(Tile& tile, const rt<T, Rows, Columns>& from, int row,
                                  int column) {
  using registers = rt<T, Rows, Columns>;
  const int lane = arch::lane_id();
  const int index =
      Tile::index(row + registers::across(0, 0, lane), column + registers::along(0, 0, lane));
#pragma unroll
  for (int line = 0; line < Rows / 16; ++line) {
#pragma unroll
    for (int i = 0; i < Columns / 4; ++i) {
      const int at = detail::moved_index<Tile>(index, 16 * line + i % 2 * 8, i / 2 * 8);
      arch::store_shared(reinterpret_cast<uint32_t*>(&tile.data[at]), from.data[line][i]);
    }
  }
}

// Rows in global memory, so many of which and of their columns exist, from registers: of two
// neighbouring lanes, each has four neighbours of a row at last.
template <class T, int Rows, int Columns>
KITTENS_DEVICE void store_rows(T* to, int64_t stride, int count, int columns,
                               const rt<T, Rows, Columns>& rows) {
  const int lane = arch::lane_id(), row = lane / 4;
  const bool odd = lane % 2 == 1;
  const int column = odd * 8 + lane % 4 / 2 * 4;
  T* const first = to + row * stride + column;
#pragma unroll
  for (int i = 0; i < Rows / 8; ++i) {
#pragma unroll
    for (int t = 0; t < Columns / 16; ++t) {
      const uint32_t low = rows.data[i / 2][4 * t + i % 2];
      const uint32_t high = rows.data[i / 2][4 * t + i % 2 + 2];
      const uint32_t other = arch::shuffle_xor(odd ? low : high, 1);
      if (row + 8 * i >= count || column + 16 * t >= columns) continue;
      arch::store_global(reinterpret_cast<uint2*>(first + 8 * i * stride + 16 * t),
                         odd ? uint2{other, high} : uint2{low, other});
    }
  }
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
