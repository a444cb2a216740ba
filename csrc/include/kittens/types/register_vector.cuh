// rv: a vector held in the registers of one warp.
#pragma once

#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/lane_run.cuh"
#include "kittens/types/tile_sizes.cuh"

namespace kittens {

inline constexpr int kWarp = 32;  // lanes

// Which lane holds what. A vector is cut into chunks of `chunk` elements; in each of them, a lane
// holds the `run` neighbours that start at first(lane). `lane_bits` are the bits of a lane's number
// that its elements depend on: lanes that differ in the other bits alone hold the same elements.
namespace ducks::rv_layout {

// Every lane holds R neighbours of 32·R, for vectors that come from memory:
//
//   runs<4>, length 256:   element   0 … 3   4 … 7   …  124 … 127 | 128 … 131   …
//                          lane         0       1    …      31    |     0       …
//
// R·sizeof(element in memory) = 16 makes every load and store of a lane one 16-byte access.
template <int Run>
struct runs {
  static_assert(Run == 1 || Run == 2 || Run == 4 || Run == 8, "a run is 1, 2, 4 or 8 elements");
  static constexpr int run = Run, chunk = 32 * Run, lane_bits = 31;
  KITTENS_INLINE static constexpr int first(int lane) { return lane * Run; }
};
using naive = runs<1>;

// One value per row of a tile in row layout, in the four lanes that hold the row:
//
//   element    0        1       …      7    |    8    …
//   lanes    0 … 3    4 … 7     …   28 … 31 |  0 … 3  …
struct ortho {
  static constexpr int run = 1, chunk = 8, lane_bits = 0b11100;
  KITTENS_INLINE static constexpr int first(int lane) { return lane / 4; }
};

// One value per column of a tile in row layout, in the eight lanes that hold the column:
//
//   element        0, 1             2, 3        …       6, 7         |      8, 9        …
//   lanes      0, 4, …, 28     1, 5, …, 29      …   3, 7, …, 31      |  0, 4, …, 28     …
struct align {
  static constexpr int run = 2, chunk = 8, lane_bits = 0b00011;
  KITTENS_INLINE static constexpr int first(int lane) { return lane % 4 * 2; }
};

}  // namespace ducks::rv_layout

template <element T, int Length, class Layout = ducks::rv_layout::naive>
struct rv {
  using dtype = T;
  using layout = Layout;
  static constexpr int length = Length;
  static constexpr int run_length = Layout::run;
  static constexpr int chunk = Layout::chunk;  // elements between two runs of one lane
  static constexpr int chunks = Length / chunk;
  static constexpr int lane_bits = Layout::lane_bits;
  static_assert(Length % chunk == 0, "the length must be a multiple of the layout's chunk");

  lane_run<T, run_length> data[chunks];

  // The index in the vector of the first element of data[c] in `lane`.
  KITTENS_INLINE static constexpr int first(int c, int lane) {
    return c * chunk + Layout::first(lane);
  }
};

template <class V>
inline constexpr bool is_register_vector = false;
template <class T, int N, class L>
inline constexpr bool is_register_vector<rv<T, N, L>> = true;

template <class V>
concept register_vector = is_register_vector<std::remove_cvref_t<V>>;

// Two vectors whose elements lie in the same lanes; the element types may differ.
template <class A, class B>
concept same_layout =
    register_vector<A> && register_vector<B> &&
    std::remove_cvref_t<A>::length == std::remove_cvref_t<B>::length &&
    std::same_as<typename std::remove_cvref_t<A>::layout, typename std::remove_cvref_t<B>::layout>;

KITTENS_IN_ELEMENTS {
  template <int Length, class Layout = ducks::rv_layout::naive>
  using rv_bf = rv<bf16, Length, Layout>;
  template <int Length, class Layout = ducks::rv_layout::naive>
  using rv_hf = rv<half, Length, Layout>;
  template <int Length, class Layout = ducks::rv_layout::naive>
  using rv_fl = rv<float, Length, Layout>;
}  // KITTENS_IN_ELEMENTS

}  // namespace kittens
