// The tile layer in the spelling of the literature's H100 kernels (2024): sizes in base tiles of 16
// × 16, tensor maps and barriers as CUDA has them.
//
//   #include <kittens/classic.cuh>      // in place of <kittens.cuh>
//   using namespace kittens;            // st_bf<4, 4> is 64 × 64, rt_fl<1, 8> is 16 × 128
//
// Where <kittens.cuh> comes first in a translation unit, its names are those of `namespace
// kittens`, and these stand in kittens::classic: a kernel that is written in that namespace has
// them. Both make the same types (types/tile_sizes.cuh), and all operations are those of the tile
// layer; docs/classic.md says which name is which, and what differs.
#pragma once

#ifndef KITTENS_CLASSIC
#define KITTENS_CLASSIC 1
#endif

#include <type_traits>

#include "kittens.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/tensor_map.cuh"
#include "kittens/types/tile_sizes.cuh"

using CUtensorMap = kittens::arch::tensor_map;  // cuda.h's own; in the simulator, its map

namespace kittens {

// ---- names that mean something else here than in <kittens.cuh>

KITTENS_IN_TILES {
  template <int Height, int Width, class Layout = ducks::rt_layout::row>
  using rt_bf = rt<bf16, Height * kBase, Width * kBase, Layout>;
  template <int Height, int Width, class Layout = ducks::rt_layout::row>
  using rt_hf = rt<half, Height * kBase, Width * kBase, Layout>;
  template <int Height, int Width, class Layout = ducks::rt_layout::row>
  using rt_fl = rt<float, Height * kBase, Width * kBase, Layout>;

  template <int Height, int Width, class Layout = ducks::st_layout::swizzle>
  using st_bf = st<bf16, Height * kBase, Width * kBase, Layout>;
  template <int Height, int Width, class Layout = ducks::st_layout::swizzle>
  using st_hf = st<half, Height * kBase, Width * kBase, Layout>;
  template <int Height, int Width, class Layout = ducks::st_layout::swizzle>
  using st_fl = st<float, Height * kBase, Width * kBase, Layout>;

  template <int Tiles>
  using sv_bf = sv<bf16, Tiles * kBase>;
  template <int Tiles>
  using sv_hf = sv<half, Tiles * kBase>;
  template <int Tiles>
  using sv_fl = sv<float, Tiles * kBase>;

  // group<4>, and the older names of some of its operations.
  struct warpgroup : group<kWarpgroupWarps> {
    template <register_tile... Tiles>
    KITTENS_DEVICE static void fence(Tiles&... tiles) {
      mma_fence(tiles...);
    }
    KITTENS_DEVICE static void commit_group() { mma_commit_group(); }
    template <int Groups = 0>
    KITTENS_DEVICE static void async_wait() {
      mma_async_wait<Groups>();
    }
    template <int Registers>
    KITTENS_DEVICE static void increase_registers() {
      raise_registers<Registers>();
    }
    template <int Registers>
    KITTENS_DEVICE static void decrease_registers() {
      lower_registers<Registers>();
    }
  };
}  // KITTENS_IN_TILES

// ---- names that <kittens.cuh> does not have

inline constexpr int TILE_DIM = kBase;
inline constexpr int WARP_THREADS = kWarp;
inline constexpr int WARPGROUP_WARPS = kWarpgroupWarps;
inline constexpr int WARPGROUP_THREADS = kWarpgroupWarps * kWarp;
// Dynamic, of a block: with what is left of 227 KiB, `__shared__` barriers fit beside it.
inline constexpr int MAX_SHARED_MEMORY = 227000;

// All of these are the one layout that TMA writes and wgmma reads, transposed or not. Of
// wgmma_interleave, whose 8 × 8 matrices lie one after the other in the literature, it takes the
// place: the elements are the same, their places in memory are not.
namespace ducks::st_layout {
using wgmma_swizzle = swizzle;
using wgmma_interleave = swizzle;
using xor_swizzle = swizzle;
}  // namespace ducks::st_layout

template <tile Tile>
using row_vec = typename Tile::row_vec;
template <tile Tile>
using col_vec = typename Tile::col_vec;

using tma_swizzle_allocator = tma_allocator;

// Of all of them together, as barriers expect them.
template <class... Tiles>
inline constexpr int size_bytes = (0 + ... + int{sizeof(Tiles)});

namespace base_types {

template <element T>
struct constants {
  KITTENS_INLINE static T zero() { return convert<T>(0.0f); }
  KITTENS_INLINE static T one() { return convert<T>(1.0f); }
  KITTENS_INLINE static T pos_infty() { return convert<T>(kInfinity); }
  KITTENS_INLINE static T neg_infty() { return convert<T>(-kInfinity); }
};

}  // namespace base_types

// ---- barriers, which are eight bytes of a semaphore as a number, and tiles by TMA

namespace detail {

// What a barrier expects of a tile, or of an array of Counts.
template <class Tile, int... Counts>
struct transfer_bytes {
  static constexpr int bytes = (size_bytes<Tile> * ... * Counts);
};

KITTENS_DEVICE semaphore& semaphore_of(uint64_t& barrier) {
  static_assert(sizeof(semaphore) == sizeof(barrier) && alignof(semaphore) == alignof(uint64_t));
  return reinterpret_cast<semaphore&>(barrier);
}

// f(map, …), the rest as of for_each_chunk (ops/tma.cuh), for tile (row, column), by the first lane
// of the warp. The map may be in global memory, which asks for a fence in each block before its
// first use (CUDA C++ Programming Guide, "Using TMA to transfer multi-dimensional arrays"). The
// classic spelling has no word for that, and no place where a first use is known: so each use says
// that the map is to be fenced, and the compiler leaves one fence a map and warp in front of loops.
template <class Tile, class F>
KITTENS_DEVICE void first_lane_for_each_chunk(const CUtensorMap* map, int row, int column, F f) {
  if (laneid() != 0) return;
  const CUtensorMap* fenced = arch::fenced_tensor_map(map);
  for_each_chunk<Tile, Tile>({.r = row, .c = column},
                             [&](int i, int c, int r, int d, int b) { f(fenced, i, c, r, d, b); });
}

}  // namespace detail

KITTENS_DEVICE void arrive(uint64_t& barrier, int count = 1) {
  arrive(detail::semaphore_of(barrier), count);
}
KITTENS_DEVICE void wait(uint64_t& barrier, int phase) {
  wait(detail::semaphore_of(barrier), static_cast<uint32_t>(phase));
}

// A whole warp may call what one thread does: its first lane does it.
namespace tma {

using barrier = uint64_t;

// Arrives once, and has the phase wait for `bytes` more.
KITTENS_DEVICE void set_bytes(barrier& b, int bytes) {
  if (laneid() == 0) expect_bytes(detail::semaphore_of(b), bytes);
}

// For `arrivals` in each phase. With a type, the first phase expects it, or an array of Counts:
// init_barrier<st_bf<4, 4>, 2>(b) is init_barrier(b), and set_bytes(b, size_bytes<st_bf<4, 4>[2]>).
template <class Tile = void, int... Counts>
KITTENS_DEVICE void init_barrier(barrier& b, int arrivals = 1) {
  if (laneid() == 0) init_semaphore(detail::semaphore_of(b), arrivals);
  if constexpr (!std::is_void_v<Tile>) set_bytes(b, detail::transfer_bytes<Tile, Counts...>::bytes);
}

// Until the phase of this parity has ended. In spite of its name it does not arrive.
KITTENS_DEVICE void arrive_and_wait(barrier& b, int phase) { wait(b, phase); }

// Tile (row, column) of the tensor.
template <shared_tile Tile>
KITTENS_DEVICE void load_async(Tile& dst, const CUtensorMap* src, barrier& full, int row,
                               int column = 0) {
  detail::first_lane_for_each_chunk<Tile>(
      src, row, column, [&](const CUtensorMap* map, int i, auto... at) {
        arch::tma_load(&dst.data[i], map, &detail::semaphore_of(full).barrier, at...);
      });
}

template <shared_tile Tile>
KITTENS_DEVICE void store_async(const CUtensorMap* dst, const Tile& src, int row, int column = 0) {
  detail::first_lane_for_each_chunk<Tile>(dst, row, column,
                                          [&](const CUtensorMap* map, int i, auto... at) {
                                            arch::tma_store(map, &src.data[i], at...);
                                          });
}

template <shared_tile Tile>
KITTENS_DEVICE void store_add_async(const CUtensorMap* dst, const Tile& src, int row,
                                    int column = 0) {
  detail::first_lane_for_each_chunk<Tile>(dst, row, column,
                                          [&](const CUtensorMap* map, int i, auto... at) {
                                            arch::tma_store_add(map, &src.data[i], at...);
                                          });
}

template <shared_tile Tile>
KITTENS_DEVICE void prefetch(const Tile&, const CUtensorMap* src, int row, int column = 0) {
  detail::first_lane_for_each_chunk<Tile>(
      src, row, column,
      [](const CUtensorMap* map, int, auto... at) { arch::tma_prefetch(map, at...); });
}

// ---- on the host

// The map of a matrix of `rows` × `columns` tiles, without gaps. Throws host::error when the
// hardware cannot take it, and says why.
template <shared_tile Tile>
void create_tensor_map(CUtensorMap* map, const typename Tile::dtype* data, int rows,
                       int columns = 1) {
  using T = const typename Tile::dtype;
  const int64_t width = int64_t{columns} * Tile::cols;
  *map = tma_map<Tile>::of(gl<T>::matrix(data, int64_t{rows} * Tile::rows, width, width)).map;
}

// The same in the device's memory, as a kernel takes it: cudaFree gives it back.
template <shared_tile Tile>
CUtensorMap* allocate_and_create_tensor_map(const typename Tile::dtype* data, int rows,
                                            int columns = 1) {
  CUtensorMap map;
  create_tensor_map<Tile>(&map, data, rows, columns);
  return host::tensor_map_on_device(map);
}

}  // namespace tma
}  // namespace kittens
