// Movement of vectors between global memory, shared memory and registers, destination first.
// Element types convert on the way.
//
//   load(rv, tensor, at)   store(tensor, rv, at)   vector number at.c of a row
//   load_evict_last(rv, tensor, at)                the L2 evicts it last
//   gather(rv, pointers, inside)                   each lane's runs, which start at any element
//   scatter(pointers, rv, inside)                  each lane's runs, aligned
//   load(rv, ptr)          store(ptr, rv)
//   load(sv, tensor, at)   store(tensor, sv, at)
//   load(rv, sv)           store(sv, rv)
//   load_async<Layout>(sv, tensor, at)             cp.async
//
// Of a tensor, what lies past its last column reads as zero and is not written. Of what several
// lanes hold, one lane stores it. Shared vectors are for threads alone: a write to one ends with no
// proxy fence.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/thread.cuh"
#include "kittens/ops/global/run_access.cuh"
#include "kittens/types/global_tensor.cuh"
#include "kittens/types/register_vector.cuh"
#include "kittens/types/shared_vector.cuh"

namespace kittens {

namespace detail {

// How many elements of vector number c lie from this lane's first one up to the last column, or
// V::length where all do, so that tensors of V::length columns, known at compile time, need no
// comparison. The lane holds run i where V::first(i, 0) is less: compared with constants, the runs'
// columns take no registers.
template <class V>
KITTENS_DEVICE int columns_left(int64_t cols, int64_t c) {
  const int64_t left = cols - c * V::length;
  return left < V::length ? int(left) - V::first(0, arch::lane_id()) : V::length;
}

// Whether this lane stores its elements: the first of those that hold the same ones does.
template <class V>
KITTENS_DEVICE bool stores_elements() {
  if constexpr (V::lane_bits == kWarp - 1) {
    return true;
  } else {
    return (arch::lane_id() & ~V::lane_bits) == 0;
  }
}

// A tile's vector takes any address and any number of columns, so its runs may have to move element
// by element. With runs<R>, who chooses R knows that they move as a whole.
template <class V>
inline constexpr bool takes_any_address =
    std::same_as<typename V::layout, ducks::rv_layout::align> ||
    std::same_as<typename V::layout, ducks::rv_layout::ortho>;

template <class V, class T>
KITTENS_DEVICE bool moves_in_runs(const T* start, int left) {
  if constexpr (takes_any_address<V> && V::run_length > 1) {
    return reinterpret_cast<uintptr_t>(start) % (V::run_length * sizeof(T)) == 0 &&
           left % V::run_length == 0;
  } else {
    return true;
  }
}

// dst = start[0 …], of which `left` elements are there, counted from this lane's first one.
template <bool EvictLast = false, register_vector V, class T>
KITTENS_DEVICE void load_vector(V& dst, const T* start, int left) {
  constexpr int kRun = V::run_length;
  const bool whole = moves_in_runs<V>(start, left);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    const T* src = start + V::first(c, arch::lane_id());
    lane_run<T, kRun> loaded;
    if (whole) {
      run_access<T, kRun>::template load<EvictLast>(loaded, src, V::first(c, 0) < left);
    } else {
      lane_run<T, 1> elements[kRun];
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        run_access<T, 1>::load(elements[i], src + i, V::first(c, 0) + i < left);
      }
      join(loaded, elements);
    }
    convert_run(dst.data[c], loaded);
  }
}

// start[0 …] = src, as far as `left` says.
template <class T, register_vector V>
KITTENS_DEVICE void store_vector(T* start, const V& src, int left) {
  constexpr int kRun = V::run_length;
  if (!stores_elements<V>()) return;
  const bool whole = moves_in_runs<V>(start, left);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    T* dst = start + V::first(c, arch::lane_id());
    lane_run<T, kRun> stored;
    convert_run(stored, src.data[c]);
    if (whole) {
      run_access<T, kRun>::store(dst, stored, V::first(c, 0) < left);
    } else {
      lane_run<T, 1> elements[kRun];
      split(elements, stored);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        run_access<T, 1>::store(dst + i, elements[i], V::first(c, 0) + i < left);
      }
    }
  }
}

template <class V, class S>
KITTENS_INLINE constexpr void check_lengths() {
  static_assert(V::length == S::length,
                "a register vector moves to and from a shared vector of the same length");
}

}  // namespace detail

// dst = src[at.b, at.d, at.r, at.c·length …]; elements past the last column read as zero.
//
// With runs<R>, every run moves as a whole: R divides the number of columns, and every row starts
// at a multiple of R elements' bytes (16 at most). runs<1> takes anything, and so do the vectors of
// tiles (ortho, align).
template <register_vector V, global_tensor G>
KITTENS_DEVICE void load(V& dst, const G& src, coord at = {}) {
  using T = typename G::dtype;
  const T* start = src.row(at) + at.c * V::length;
  detail::load_vector(dst, start, detail::columns_left<V>(src.cols, at.c));
}

// The same with L2::evict_last. Kernels that read and write rows once are up to 4 % faster so on an
// H200: benchmarks/rms_norm.md.
template <register_vector V, global_tensor G>
KITTENS_DEVICE void load_evict_last(V& dst, const G& src, coord at = {}) {
  using T = typename G::dtype;
  const T* start = src.row(at) + at.c * V::length;
  detail::load_vector</*EvictLast=*/true>(dst, start, detail::columns_left<V>(src.cols, at.c));
}

// dst[at.b, at.d, at.r, at.c·length …] = src; elements past the last column are not written.
template <global_tensor G, register_vector V>
KITTENS_DEVICE void store(const G& dst, const V& src, coord at = {}) {
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(dst.data)>>,
                "store(tensor, vector): the tensor is const");
  detail::store_vector(dst.row(at) + at.c * V::length, src,
                       detail::columns_left<V>(dst.cols, at.c));
}

// How many elements before and behind a run of R, at most, gather may read beside it.
template <class T, int R>
inline constexpr int gather_margin = detail::run_pieces<T, R>::kPiece - 1;

// dst.data[c] = the run at src[c], which each lane says for itself and which may start at any
// element; zero where not inside[c].
template <register_vector V, class T>
  requires element<T>
KITTENS_DEVICE void gather(V& dst, const T* const (&src)[V::chunks],
                           const bool (&inside)[V::chunks]) {
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> loaded;
    detail::run_pieces<T, V::run_length>::load(loaded, src[c], inside[c]);
    convert_run(dst.data[c], loaded);
  }
}

// The run at dst[c] = src.data[c], where inside[c]. It starts at a multiple of its bytes, or of 16.
template <class T, register_vector V>
  requires element<T>
KITTENS_DEVICE void scatter(T* const (&dst)[V::chunks], const V& src,
                            const bool (&inside)[V::chunks]) {
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> stored;
    convert_run(stored, src.data[c]);
    detail::run_access<T, V::run_length>::store(dst[c], stored, inside[c]);
  }
}

// The same as load and store, of all elements from a pointer on.
template <register_vector V, class T>
  requires element<T>
KITTENS_DEVICE void load(V& dst, const T* src) {
  detail::load_vector(dst, src, detail::columns_left<V>(V::length, 0));
}
template <class T, register_vector V>
  requires element<T>
KITTENS_DEVICE void store(T* dst, const V& src) {
  detail::store_vector(dst, src, detail::columns_left<V>(V::length, 0));
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
KITTENS_DEVICE void load(V& dst, const S& src) {
  using T = typename S::dtype;
  detail::check_lengths<V, S>();
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
KITTENS_DEVICE void store(S& dst, const V& src) {
  using T = typename S::dtype;
  detail::check_lengths<V, S>();
  if (!detail::stores_elements<V>()) return;
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    lane_run<T, V::run_length> stored;
    convert_run(stored, src.data[c]);
    detail::run_access<T, V::run_length>::store_shared(&dst.data[V::first(c, arch::lane_id())],
                                                       stored);
  }
}

// Between shared and global memory, by the lanes of a warp in turn; any address and length.
template <shared_vector S, global_tensor G>
KITTENS_DEVICE void load(S& dst, const G& src, coord at = {}) {
  using T = typename G::dtype;
  const T* start = src.row(at) + at.c * S::length;
#pragma unroll
  for (int i = arch::lane_id(); i < S::length; i += kWarp) {
    lane_run<T, 1> loaded;
    lane_run<typename S::dtype, 1> stored;
    detail::run_access<T, 1>::load(loaded, start + i, at.c * S::length + i < src.cols);
    convert_run(stored, loaded);
    detail::run_access<typename S::dtype, 1>::store_shared(&dst.data[i], stored);
  }
}
template <global_tensor G, shared_vector S>
KITTENS_DEVICE void store(const G& dst, const S& src, coord at = {}) {
  using T = typename G::dtype;
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(dst.data)>>,
                "store(tensor, vector): the tensor is const");
  T* start = dst.row(at) + at.c * S::length;
  for (int i = arch::lane_id(); i < S::length && at.c * S::length + i < dst.cols; i += kWarp) {
    lane_run<typename S::dtype, 1> loaded;
    lane_run<T, 1> stored;
    detail::run_access<typename S::dtype, 1>::load_shared(loaded, &src.data[i]);
    convert_run(stored, loaded);
    detail::run_access<T, 1>::store(start + i, stored);
  }
}

}  // namespace kittens
