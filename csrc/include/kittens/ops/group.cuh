// Scopes wider than a warp. group<N> is N neighbouring warps, the first of them a multiple of N;
// all of them call. warpgroup = group<4> has the tensor cores' asynchronous products as well.
//
//   group<8>::load(tile, tensor, at);       a shared tile, together (ops/global/)
//   warpgroup::store(tile, registers);      registers: of warp w, rows w·rows … of the tile
//   warpgroup::add(tile, tile, other);      shared tiles, together (ops/shared/elementwise.cuh)
//   warpgroup::row_sum(vector, tile);       (ops/shared/reduce_and_mask.cuh)
//   warpgroup::sync(1);                     named barrier 1, of these warps
//   warpgroup::mma_AB(d, a, b);             ops/warpgroup_mma.cuh
//
// Maths on register tiles is each warp's own part, at any scope.
#pragma once

#include "kittens/arch/barrier.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/arch/registers.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/arch/wgmma.cuh"
#include "kittens/ops/cluster.cuh"
#include "kittens/ops/global/tile_load_store.cuh"
#include "kittens/ops/shared/reduce_and_mask.cuh"
#include "kittens/ops/warpgroup_mma.cuh"
#include "kittens/types/register_tile.cuh"
#include "kittens/types/scope.cuh"
#include "kittens/types/tile_sizes.cuh"

namespace kittens {

template <int Warps>
struct group : tile_movement<Warps>, tile_reductions<Warps> {
  static_assert(Warps >= 1 && Warps <= 32, "a group is 1 to 32 warps, as many as a block can have");
  static constexpr int warps = Warps, threads = Warps * kWarp;
  using cluster = cluster_movement<Warps>;  // other blocks' shared memory (ops/cluster.cuh)

  KITTENS_DEVICE static int warpid() { return arch::warp_id() % Warps; }      // in the group
  KITTENS_DEVICE static int laneid() { return arch::thread_id() % threads; }  // in the group
  // Which of the block's groups; whole warps call.
  KITTENS_DEVICE static int groupid() { return detail::uniform(arch::warp_id() / Warps); }

  // Named barrier `id`, 1 to 15. Two groups that meet at one time take two barriers.
  KITTENS_DEVICE static void sync(int id) { arch::named_barrier_sync(id, threads); }
  // Where all_threads meet, of which this group's are some: it counts as there, and goes on. The
  // others wait by arch::named_barrier_sync(id, all_threads).
  KITTENS_DEVICE static void arrive(int id, int all_threads) {
    arch::named_barrier_arrive(id, all_threads);
  }

  // Registers that a thread may use from here on: 24, 32 … 256, the same in all four warps of a
  // warpgroup. One that needs few lowers them; one that needs many waits until they are there.
  template <int Registers>
  KITTENS_DEVICE static void raise_registers() {
    check_warpgroups();
    arch::raise_registers<Registers>();
  }
  template <int Registers>
  KITTENS_DEVICE static void lower_registers() {
    check_warpgroups();
    arch::lower_registers<Registers>();
  }

  // Register tiles that are named, of d and a, are not touched by arithmetic that the compiler
  // moves past the fence or the wait: for where ptxas says that it waits more than asked (C7517,
  // C7519).
  template <register_tile... Tiles>
  KITTENS_DEVICE static void mma_fence(Tiles&... tiles) {
    check_warpgroup();
    arch::wgmma_hold(tiles.data[0]...);
    arch::wgmma_fence();
  }
  KITTENS_DEVICE static void mma_commit_group() {
    check_warpgroup();
    arch::wgmma_commit();
  }
  template <int Groups = 0, register_tile... Tiles>
  KITTENS_DEVICE static void mma_async_wait(Tiles&... tiles) {
    check_warpgroup();
    arch::wgmma_wait<Groups>();
    arch::wgmma_hold(tiles.data[0]...);
  }

#define KITTENS_PRODUCT(name, a_transposed, b_transposed)                  \
  template <class D, class A, class B>                                     \
  KITTENS_DEVICE static void mma_##name(D& d, const A& a, const B& b) {    \
    check_warpgroup();                                                     \
    detail::warpgroup_product<a_transposed, b_transposed, true>(d, a, b);  \
  }                                                                        \
  template <class D, class A, class B>                                     \
  KITTENS_DEVICE static void mm_##name(D& d, const A& a, const B& b) {     \
    check_warpgroup();                                                     \
    detail::warpgroup_product<a_transposed, b_transposed, false>(d, a, b); \
  }
  KITTENS_PRODUCT(AB, false, false)
  KITTENS_PRODUCT(ABt, false, true)
  KITTENS_PRODUCT(AtB, true, false)
  KITTENS_PRODUCT(AtBt, true, true)
#undef KITTENS_PRODUCT

  template <class D, class A, class B>
  KITTENS_DEVICE static void mma_AB_row_sums(D& d, const A& a, const B& b) {
    check_warpgroup();
    detail::product_with_row_sums(d, a, b);
  }

 private:
  KITTENS_INLINE static constexpr void check_warpgroup() {
    static_assert(
        Warps == kWarpgroupWarps,
        "asynchronous products are of a warpgroup: group<4>; a warp has mma_AB(d, a, b, c)");
  }
  KITTENS_INLINE static constexpr void check_warpgroups() {
    static_assert(Warps % kWarpgroupWarps == 0,
                  "registers move between warpgroups: N of group<N> must be a multiple of 4");
  }
};

KITTENS_IN_ELEMENTS { using warpgroup = group<kWarpgroupWarps>; }  // KITTENS_IN_ELEMENTS

}  // namespace kittens
