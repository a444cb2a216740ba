// Distributed shared memory: tiles and vectors of the other blocks of a cluster, which the launch
// asks for (launch_config::cluster). What a call names as `there` stands in another block's shared
// memory, where this block has it in its own; `block` is that block's rank.
//
//   cluster::load(x, there, block)         x: a tile or vector in registers, or a shared one of
//                                          the same type
//   cluster::store(there, x, block)
//   cluster::copy_async(there, x, full, block)    shared x, by the copy engine; brings sizeof(x)
//                                                 bytes to the semaphore `full` there
//   cluster::rank()   cluster::blocks()
//   cluster::sync()   cluster::arrive()   cluster::wait()      the barrier of all their threads
//   cluster::arrive(s, block)   cluster::wait(s, phase)        a semaphore there, and one here,
//                                          which show what was written before the arrival
//   warpgroup::cluster::load(…) …          by a group, as group<N>::load and store
//
// A block has shared memory while it runs: a kernel passes cluster::sync() before its first call
// and after its last one. Written by `store`, a tile is there for the other block's threads after
// cluster::sync(), or after the arrival and wait above; before wgmma or TMA read it there, those
// threads call arch::fence_async_proxy(). copy_async is called by one thread, after its writers'
// proxy fence and a barrier; x may be written again when the other block says that the copy came.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/cluster.cuh"
#include "kittens/arch/cluster_memory.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/ops/global/register_tile_global.cuh"
#include "kittens/ops/global/vector_load_store.cuh"
#include "kittens/ops/shared/traversal.cuh"
#include "kittens/types/semaphore.cuh"

namespace kittens {

namespace detail {

// A run of N elements that are neighbours in another block's shared memory, in one access.
template <class T, int N>
struct cluster_run {
  using word_type = typename word<N* int(sizeof(T))>::type;

  KITTENS_DEVICE static void load(lane_run<T, N>& dst, const T* there, int block) {
    const word_type bits = arch::load_cluster(reinterpret_cast<const word_type*>(there), block);
    std::memcpy(static_cast<void*>(&dst), &bits, sizeof(dst));
  }
  KITTENS_DEVICE static void store(T* there, const lane_run<T, N>& src, int block) {
    word_type bits;
    std::memcpy(&bits, &src, sizeof(src));
    arch::store_cluster(reinterpret_cast<word_type*>(there), block, bits);
  }
};

// Where the elements of this lane's pairs are in a shared tile: f(line, t, p, first, second).
template <int Warps, register_tile R, shared_tile S, class F>
KITTENS_DEVICE void for_each_pair_in(F f) {
  const int across = R::across(0, 0, arch::lane_id()), along = R::along(0, 0, arch::lane_id());
  const int first_row = group_warp<Warps>() * R::rows + (R::is_row ? across : along);
  const int first_col = R::is_row ? along : across;
  for_each_pair<R>([&](int line, int t, int p, int row, int col) {
    const int r = first_row + row, c = first_col + col;
    f(line, t, p, S::index(r, c), R::is_row ? S::index(r, c + 1) : S::index(r + 1, c));
  });
}

}  // namespace detail

// By Warps warps, as group<Warps> loads and stores.
template <int Warps>
struct cluster_movement {
  KITTENS_DEVICE static int rank() { return arch::cluster_rank(); }
  KITTENS_DEVICE static int blocks() { return arch::cluster_blocks(); }

  // All threads of the cluster that have not exited.
  KITTENS_DEVICE static void sync() { arch::cluster_sync(); }
  KITTENS_DEVICE static void arrive() { arch::cluster_arrive(); }
  KITTENS_DEVICE static void wait() { arch::cluster_wait(); }

  // One thread. The semaphore must have been initialised, and a cluster barrier passed since.
  KITTENS_DEVICE static void arrive(semaphore& there, int block, int count = 1) {
    arch::mbarrier_arrive_cluster(&there.barrier, block, count);
  }
  KITTENS_DEVICE static void wait(semaphore& s, uint32_t phase) {
    arch::mbarrier_wait_cluster(&s.barrier, phase);
  }

  // ---- registers: of a group's, warp w has rows w·rows … of the tile there

  template <register_tile R, shared_tile S>
  KITTENS_DEVICE static void load(R& dst, const S& there, int block) {
    using T = typename S::dtype;
    check_tiles<R, S>();
    detail::for_each_pair_in<Warps, R, S>([&](int line, int t, int p, int first, int second) {
      lane_run<T, 2> loaded;
      if constexpr (R::is_row) {  // neighbours in memory too
        detail::cluster_run<T, 2>::load(loaded, &there.data[first], block);
      } else {
        lane_run<T, 1> elements[2];
        detail::cluster_run<T, 1>::load(elements[0], &there.data[first], block);
        detail::cluster_run<T, 1>::load(elements[1], &there.data[second], block);
        detail::join(loaded, elements);
      }
      lane_run<typename R::dtype, 2> pair;
      convert_run(pair, loaded);
      detail::set_pair(dst, line, t, p, pair);
    });
  }
  template <shared_tile S, register_tile R>
  KITTENS_DEVICE static void store(S& there, const R& src, int block) {
    using T = typename S::dtype;
    check_tiles<R, S>();
    detail::for_each_pair_in<Warps, R, S>([&](int line, int t, int p, int first, int second) {
      lane_run<typename R::dtype, 2> pair;
      detail::get_pair(pair, src, line, t, p);
      lane_run<T, 2> stored;
      convert_run(stored, pair);
      if constexpr (R::is_row) {
        detail::cluster_run<T, 2>::store(&there.data[first], stored, block);
      } else {
        lane_run<T, 1> elements[2];
        detail::split(elements, stored);
        detail::cluster_run<T, 1>::store(&there.data[first], elements[0], block);
        detail::cluster_run<T, 1>::store(&there.data[second], elements[1], block);
      }
    });
  }

  // Vectors of a group: warp w has elements w·length … of the one there.
  template <register_vector V, shared_vector S>
  KITTENS_DEVICE static void load(V& dst, const S& there, int block) {
    using T = typename S::dtype;
    check_vectors<V, S>();
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) {
      lane_run<T, 1> elements[V::run_length];
#pragma unroll
      for (int i = 0; i < V::run_length; ++i) {
        detail::cluster_run<T, 1>::load(elements[i], &there.data[place<V>(c) + i], block);
      }
      lane_run<T, V::run_length> loaded;
      detail::join(loaded, elements);
      convert_run(dst.data[c], loaded);
    }
  }
  template <shared_vector S, register_vector V>
  KITTENS_DEVICE static void store(S& there, const V& src, int block) {
    using T = typename S::dtype;
    check_vectors<V, S>();
    if (!detail::stores_elements<V>()) return;
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) {
      lane_run<T, V::run_length> stored;
      convert_run(stored, src.data[c]);
      lane_run<T, 1> elements[V::run_length];
      detail::split(elements, stored);
#pragma unroll
      for (int i = 0; i < V::run_length; ++i) {
        detail::cluster_run<T, 1>::store(&there.data[place<V>(c) + i], elements[i], block);
      }
    }
  }

  // ---- shared tiles and vectors of one type, 16 bytes at a time, by all threads together

  template <in_shared X, in_shared Y>
  KITTENS_DEVICE static void load(X& dst, const Y& there, int block) {
    check_types<X, Y>();
    auto* to = reinterpret_cast<uint4*>(&dst);
    const auto* from = reinterpret_cast<const uint4*>(&there);
    for (int i = detail::group_thread<Warps>(); i < kPieces<X>; i += Warps * kWarp) {
      arch::store_shared(to + i, arch::load_cluster(from + i, block));
    }
    if constexpr (shared_tile<X>) arch::fence_async_proxy();
  }
  template <in_shared Y, in_shared X>
  KITTENS_DEVICE static void store(Y& there, const X& src, int block) {
    check_types<X, Y>();
    auto* to = reinterpret_cast<uint4*>(&there);
    const auto* from = reinterpret_cast<const uint4*>(&src);
    for (int i = detail::group_thread<Warps>(); i < kPieces<X>; i += Warps * kWarp) {
      arch::store_cluster(to + i, block, arch::load_shared(from + i));
    }
  }

  // One thread. `full`: of the other block, where this one has its own.
  template <in_shared Y, in_shared X>
  KITTENS_DEVICE static void copy_async(Y& there, const X& src, semaphore& full, int block) {
    check_types<X, Y>();
    arch::bulk_copy_cluster(&there, block, &src, sizeof(X), &full.barrier);
  }

 private:
  template <class X>
  static constexpr int kPieces = sizeof(X) / sizeof(uint4);

  template <class V>
  KITTENS_DEVICE static int place(int chunk) {
    return detail::group_warp<Warps>() * V::length + V::first(chunk, arch::lane_id());
  }
  template <class R, class S>
  KITTENS_INLINE static constexpr void check_tiles() {
    static_assert(R::cols == S::cols && Warps * R::rows == S::rows,
                  "cluster::load and store: the shared tile must have the columns of the register "
                  "tile, and the rows of the group's register tiles together");
  }
  template <class V, class S>
  KITTENS_INLINE static constexpr void check_vectors() {
    static_assert(Warps * V::length == S::length,
                  "cluster::load and store: the shared vector must have the elements of the "
                  "group's register vectors together");
  }
  template <class X, class Y>
  KITTENS_INLINE static constexpr void check_types() {
    static_assert(std::is_same_v<X, Y>,
                  "between two blocks, shared tiles and vectors move as they are: both must have "
                  "one type");
  }
};

using cluster = cluster_movement<1>;

}  // namespace kittens
