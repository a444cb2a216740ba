// sv: a vector in shared memory, its elements one after the other.
#pragma once

#include <type_traits>

#include "kittens/types/dtype.cuh"
#include "kittens/types/tile_sizes.cuh"

namespace kittens {

template <element T, int Length>
struct alignas(16) sv {
  using dtype = T;
  static constexpr int length = Length;

  T data[Length];
};

template <class V>
inline constexpr bool is_shared_vector = false;
template <class T, int N>
inline constexpr bool is_shared_vector<sv<T, N>> = true;

template <class V>
concept shared_vector = is_shared_vector<std::remove_cvref_t<V>>;

KITTENS_IN_ELEMENTS {
  template <int Length>
  using sv_bf = sv<bf16, Length>;
  template <int Length>
  using sv_hf = sv<half, Length>;
  template <int Length>
  using sv_fl = sv<float, Length>;
}  // KITTENS_IN_ELEMENTS

}  // namespace kittens
