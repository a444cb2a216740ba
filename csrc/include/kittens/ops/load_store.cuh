// Movement between global memory, shared vectors and register vectors, destination first. Element
// types convert on the way to and from registers.
#pragma once

#include <cstdint>
#include <cstring>

#include "kittens/arch/async_copy.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/types/global_tensor.cuh"
#include "kittens/types/register_vector.cuh"
#include "kittens/types/shared_vector.cuh"

namespace kittens {

namespace detail {

// The unsigned vector type of a given size: what one memory instruction moves.
template <int Bytes>
struct word;
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};

// A lane's run, in accesses of up to 16 bytes.
template <class T, int N>
struct run_access {
  static constexpr int kBytes = N * int(sizeof(T)) < 16 ? N * int(sizeof(T)) : 16;
  static constexpr int kWords = N * int(sizeof(T)) / kBytes;
  using word_type = typename word<kBytes>::type;

  // From global memory; zero where not `inside`.
  KITTENS_DEVICE static void load(lane_run<T, N>& dst, const T* src, bool inside) {
    word_type words[kWords] = {};
    if (inside) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = arch::load_global(reinterpret_cast<const word_type*>(src) + i);
      }
    }
    std::memcpy(static_cast<void*>(&dst), &words, sizeof(dst));
  }
  KITTENS_DEVICE static void load_shared(lane_run<T, N>& dst, const T* src) {
    word_type words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = arch::load_shared(reinterpret_cast<const word_type*>(src) + i);
    }
    std::memcpy(static_cast<void*>(&dst), &words, sizeof(dst));
  }
  KITTENS_DEVICE static void store_shared(T* dst, const lane_run<T, N>& src) {
    word_type words[kWords];
    std::memcpy(&words, &src, sizeof(src));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::store_shared(reinterpret_cast<word_type*>(dst) + i, words[i]);
    }
  }
  KITTENS_DEVICE static void load_async(T* dst, const T* src, bool inside) {
    static_assert(kBytes >= 4, "an asynchronous copy moves 4, 8 or 16 bytes");
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::cp_async<kBytes>(dst + i * kBytes / int(sizeof(T)), src + i * kBytes / int(sizeof(T)),
                             inside);
    }
  }
  KITTENS_DEVICE static void store(T* dst, const lane_run<T, N>& src) {
    word_type words[kWords];
    std::memcpy(&words, &src, sizeof(src));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::store_global(reinterpret_cast<word_type*>(dst) + i, words[i]);
    }
  }
};

// How many elements of vector number c lie from this lane's first one up to the last column. The
// lane holds run i where V::first(i, 0) is less: compared with constants, the runs' columns take no
// registers.
template <class V>
KITTENS_DEVICE int columns_left(int64_t cols, int64_t c) {
  const int64_t left = cols - c * V::length;
  return (left < V::length ? int(left) : V::length) - V::first(0, arch::lane_id());
}

}  // namespace detail

// dst = src[at.b, at.d, at.r, at.c·length …]; elements past the last column read as zero.
//
// With runs<R>, every run moves as a whole: R divides the number of columns, and every row starts
// at a multiple of R elements' bytes (16 at most). runs<1> takes anything.
template <register_vector V, global_tensor G>
KITTENS_DEVICE void load(V& dst, const G& src, coord at = {}) {
  using T = typename G::dtype;
  const T* start = src.row(at) + at.c * V::length;
  const int left = detail::columns_left<V>(src.cols, at.c);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const int first = V::first(c, arch::lane_id());
    lane_run<T, V::run_length> loaded;
    detail::run_access<T, V::run_length>::load(loaded, start + first, V::first(c, 0) < left);
    convert_run(dst.data[c], loaded);
  }
}

// dst[at.b, at.d, at.r, at.c·length …] = src; elements past the last column are not written.
template <global_tensor G, register_vector V>
KITTENS_DEVICE void store(const G& dst, const V& src, coord at = {}) {
  using T = typename G::dtype;
  T* start = dst.row(at) + at.c * V::length;
  const int left = detail::columns_left<V>(dst.cols, at.c);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const int first = V::first(c, arch::lane_id());
    if (V::first(c, 0) < left) {
      lane_run<T, V::run_length> stored;
      convert_run(stored, src.data[c]);
      detail::run_access<T, V::run_length>::store(start + first, stored);
    }
  }
}

// dst = src[at.b, at.d, at.r, at.c·length …], asynchronously; elements past the last column become
// zero. Each lane copies the runs that it holds in rv<…, Layout>, so after arch::cp_async_commit
// and cp_async_wait it may load those back at once; other lanes' elements are there after a
// barrier.
template <class Layout, shared_vector V, global_tensor G>
  requires std::same_as<typename V::dtype, typename G::dtype>
KITTENS_DEVICE void load_async(V& dst, const G& src, coord at = {}) {
  using T = typename V::dtype;
  using vector = rv<T, V::length, Layout>;
  const T* start = src.row(at) + at.c * V::length;
  const int left = detail::columns_left<vector>(src.cols, at.c);
#pragma unroll
  for (int c = 0; c < vector::chunks; ++c) {
    const int first = vector::first(c, arch::lane_id());
    detail::run_access<T, vector::run_length>::load_async(&dst.data[first], start + first,
                                                          vector::first(c, 0) < left);
  }
}

// dst = src, from shared memory to registers.
template <register_vector V, shared_vector S>
  requires(V::length == S::length)
KITTENS_DEVICE void load(V& dst, const S& src) {
  using T = typename S::dtype;
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> loaded;
    detail::run_access<T, V::run_length>::load_shared(loaded,
                                                      &src.data[V::first(c, arch::lane_id())]);
    convert_run(dst.data[c], loaded);
  }
}

// dst = src, from registers to shared memory.
template <shared_vector S, register_vector V>
  requires(V::length == S::length)
KITTENS_DEVICE void store(S& dst, const V& src) {
  using T = typename S::dtype;
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> stored;
    convert_run(stored, src.data[c]);
    detail::run_access<T, V::run_length>::store_shared(&dst.data[V::first(c, arch::lane_id())],
                                                       stored);
  }
}

}  // namespace kittens
