// rv: a vector held in the registers of one warp.
#pragma once

#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/lane_run.cuh"

namespace kittens {

inline constexpr int kWarp = 32;  // lanes

// Which lane holds what. With runs<R>, the vector is cut into chunks of 32·R elements, and lane l
// holds the R neighbours that start at l·R in each chunk:
//
//   runs<4>, length 256:   element   0 … 3   4 … 7   …  124 … 127 | 128 … 131   …
//                          lane         0       1    …      31    |     0       …
//
// R·sizeof(element in memory) = 16 makes every load and store of a lane one 16-byte access.
namespace ducks::rv_layout {
template <int Run>
struct runs {
  static_assert(Run == 1 || Run == 2 || Run == 4 || Run == 8, "a run is 1, 2, 4 or 8 elements");
  static constexpr int run = Run;
};
using naive = runs<1>;
}  // namespace ducks::rv_layout

template <element T, int Length, class Layout = ducks::rv_layout::naive>
struct rv {
  using dtype = T;
  using layout = Layout;
  static constexpr int length = Length;
  static constexpr int run_length = Layout::run;
  static constexpr int chunk = kWarp * run_length;  // elements between two runs of one lane
  static constexpr int chunks = Length / chunk;
  static_assert(Length % chunk == 0, "the length must be a multiple of 32 lanes times the run");

  lane_run<T, run_length> data[chunks];

  // The index in the vector of the first element of data[c] in `lane`.
  KITTENS_DEVICE static int first(int c, int lane) { return c * chunk + lane * run_length; }
};

template <class V>
inline constexpr bool is_register_vector = false;
template <class T, int N, class L>
inline constexpr bool is_register_vector<rv<T, N, L>> = true;

template <class V>
concept register_vector = is_register_vector<std::remove_cvref_t<V>>;

// Two vectors whose elements lie in the same lanes; the element types may differ.
template <class A, class B>
concept same_layout = register_vector<A> && register_vector<B> &&
                      std::remove_cvref_t<A>::length == std::remove_cvref_t<B>::length &&
                      std::remove_cvref_t<A>::run_length == std::remove_cvref_t<B>::run_length;

}  // namespace kittens
