// Movement of tiles between global memory, shared memory and registers, destination first. Element
// types convert on the way; strides are in elements.
//
//   load(tile, ptr, row_stride)      store(ptr, tile, row_stride)      a whole tile, any alignment
//   load(tile, tensor, at)           store(tensor, tile, at)           tile number (at.r, at.c)
//   load(rt, st)                     store(st, rt)
//   load_async(st, ptr, row_stride)  load_async(st, tensor, at)        cp.async, of one dtype
//   load_async_commit()              load_async_wait<N>()              as arch::cp_async_…
//
// Of a tensor, what lies past its last row or column reads as zero and is not written.
//
// A bare call is one warp's. Its writes to a shared tile are there for the other lanes and warps
// after a barrier; for wgmma and TMA as well, because each ends with this thread's proxy fence (on
// sm_90). load_unfenced and store_unfenced leave the fence to the caller.
#pragma once

#include "kittens/arch/async_copy.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/ops/global/register_tile_global.cuh"
#include "kittens/ops/global/shared_tile_global.cuh"
#include "kittens/ops/global/tile_window.cuh"
#include "kittens/ops/global/vector_load_store.cuh"
#include "kittens/ops/shared/register_tile_shared.cuh"

namespace kittens {

// The movements, by a group of Warps warps: together for a shared tile, and with register tiles of
// which warp w of the group holds rows w·rows … of what is moved. So tiles of a tensor are Warps
// register tiles high.
template <int Warps>
struct tile_movement {
  // ---- global memory

  template <tile Tile, class T>
  KITTENS_DEVICE static void load_unfenced(Tile& dst, const T* src, int64_t row_stride) {
    static_assert(element<T>, "load(tile, pointer): the pointer must be to float, bf16 or half");
    detail::load_tile<Warps>(dst, detail::window_of(src, row_stride));
  }
  template <tile Tile, global_tensor G>
  KITTENS_DEVICE static void load_unfenced(Tile& dst, const G& src, coord at = {}) {
    detail::load_tile<Warps>(
        dst, detail::window_of<detail::group_rows<Warps, Tile>, Tile::cols>(src, at));
  }
  template <tile Tile, class T>
  KITTENS_DEVICE static void load(Tile& dst, const T* src, int64_t row_stride) {
    load_unfenced(dst, src, row_stride);
    if constexpr (shared_tile<Tile>) arch::fence_async_proxy();
  }
  template <tile Tile, global_tensor G>
  KITTENS_DEVICE static void load(Tile& dst, const G& src, coord at = {}) {
    load_unfenced(dst, src, at);
    if constexpr (shared_tile<Tile>) arch::fence_async_proxy();
  }

  template <class T, tile Tile>
  KITTENS_DEVICE static void store(T* dst, const Tile& src, int64_t row_stride) {
    static_assert(element<T>,
                  "store(pointer, tile): the pointer must be to float, bf16 or half, not const");
    detail::store_tile<Warps>(detail::window_of(dst, row_stride), src);
  }
  template <global_tensor G, tile Tile>
  KITTENS_DEVICE static void store(const G& dst, const Tile& src, coord at = {}) {
    static_assert(!std::is_const_v<std::remove_pointer_t<decltype(dst.data)>>,
                  "store(tensor, tile): the tensor is const");
    detail::store_tile<Warps>(
        detail::window_of<detail::group_rows<Warps, Tile>, Tile::cols>(dst, at), src);
  }

  template <shared_tile S, class T>
  KITTENS_DEVICE static void load_async(S& dst, const T* src, int64_t row_stride) {
    static_assert(std::same_as<typename S::dtype, T>,
                  "load_async copies without converting: the pointer must be to the tile's dtype");
    detail::load_tile_async<Warps>(dst, detail::window_of(src, row_stride));
  }
  template <shared_tile S, global_tensor G>
  KITTENS_DEVICE static void load_async(S& dst, const G& src, coord at = {}) {
    static_assert(std::same_as<typename S::dtype, typename G::dtype>,
                  "load_async copies without converting: tensor and tile must have one dtype");
    detail::load_tile_async<Warps>(dst, detail::window_of<S::rows, S::cols>(src, at));
  }

  // ---- between shared memory and registers

  template <register_tile R, shared_tile S>
  KITTENS_DEVICE static void load(R& dst, const S& src) {
    check_shapes<R, S>();
    detail::load_tile<Warps>(dst, src);
  }
  template <shared_tile S, register_tile R>
  KITTENS_DEVICE static void store_unfenced(S& dst, const R& src) {
    check_shapes<R, S>();
    detail::store_tile<Warps>(dst, src);
  }
  template <shared_tile S, register_tile R>
  KITTENS_DEVICE static void store(S& dst, const R& src) {
    store_unfenced(dst, src);
    arch::fence_async_proxy();
  }

  // ---- vectors: of a shared one for the whole group, warp w holds elements w·length …

  template <register_vector V, shared_vector S>
  KITTENS_DEVICE static void load(V& dst, const S& src) {
    kittens::load(dst, slice<V>(src));
  }
  template <shared_vector S, register_vector V>
  KITTENS_DEVICE static void store(S& dst, const V& src) {
    kittens::store(slice<V>(dst), src);
  }

 private:
  template <class V, class S>
  KITTENS_DEVICE static auto& slice(S& all) {
    static_assert(
        S::length == Warps * V::length,
        "the shared vector must have the elements of the group's register vectors together");
    using part = sv<typename S::dtype, V::length>;
    using same_const = std::conditional_t<std::is_const_v<S>, const part, part>;
    return *reinterpret_cast<same_const*>(all.data + detail::group_warp<Warps>() * V::length);
  }
  template <class R, class S>
  KITTENS_INLINE static constexpr void check_shapes() {
    static_assert(R::cols == S::cols,
                  "a register tile moves to and from a shared tile of as many columns");
    static_assert(
        Warps * R::rows == S::rows,
        "the shared tile must have the rows of the group's register tiles together: those "
        "of one register tile when one warp moves it");
  }
};

// ---- by one warp

template <tile Tile, class T>
KITTENS_DEVICE void load(Tile& dst, const T* src, int64_t row_stride) {
  tile_movement<1>::load(dst, src, row_stride);
}
template <tile Tile, global_tensor G>
KITTENS_DEVICE void load(Tile& dst, const G& src, coord at = {}) {
  tile_movement<1>::load(dst, src, at);
}
template <register_tile R, shared_tile S>
KITTENS_DEVICE void load(R& dst, const S& src) {
  tile_movement<1>::load(dst, src);
}

template <class T, tile Tile>
KITTENS_DEVICE void store(T* dst, const Tile& src, int64_t row_stride) {
  tile_movement<1>::store(dst, src, row_stride);
}
template <global_tensor G, tile Tile>
KITTENS_DEVICE void store(const G& dst, const Tile& src, coord at = {}) {
  tile_movement<1>::store(dst, src, at);
}
template <shared_tile S, register_tile R>
KITTENS_DEVICE void store(S& dst, const R& src) {
  tile_movement<1>::store(dst, src);
}

template <shared_tile S, class T>
KITTENS_DEVICE void load_unfenced(S& dst, const T* src, int64_t row_stride) {
  tile_movement<1>::load_unfenced(dst, src, row_stride);
}
template <shared_tile S, global_tensor G>
KITTENS_DEVICE void load_unfenced(S& dst, const G& src, coord at = {}) {
  tile_movement<1>::load_unfenced(dst, src, at);
}
template <shared_tile S, register_tile R>
KITTENS_DEVICE void store_unfenced(S& dst, const R& src) {
  tile_movement<1>::store_unfenced(dst, src);
}

template <shared_tile S, class T>
KITTENS_DEVICE void load_async(S& dst, const T* src, int64_t row_stride) {
  tile_movement<1>::load_async(dst, src, row_stride);
}
template <shared_tile S, global_tensor G>
KITTENS_DEVICE void load_async(S& dst, const G& src, coord at = {}) {
  tile_movement<1>::load_async(dst, src, at);
}

// Closes this thread's group of asynchronous copies; and waits until at most N of its latest groups
// are under way, after which a barrier shows what has come to the others, wgmma and TMA included.
KITTENS_DEVICE void load_async_commit() { arch::cp_async_commit(); }
template <int N = 0>
KITTENS_DEVICE void load_async_wait() {
  arch::cp_async_wait<N>();
  arch::fence_async_proxy();
}

}  // namespace kittens
