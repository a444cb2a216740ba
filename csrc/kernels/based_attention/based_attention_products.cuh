// based_attention: the products of a chunk, of both kernels by the same names.
// (based_attention.cuh, based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_tile.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

// By wgmma: a product is under way until it is waited for.
struct warpgroup_products : warpgroup {
  static constexpr int kPart = kChunk;  // columns of scores at a time
  // Those rows of a right side.
  template <class Tile>
  KITTENS_DEVICE static const Tile& part_of(const Tile& tile, int) {
    return tile;
  }
};

// By mma.sync: it is done when it returns.
struct warp_products {
  static constexpr int kPart = 16;  // so that each warp computes those that count alone
  template <class Tile>
  KITTENS_DEVICE static auto part_of(const Tile& tile, int part) {
    return rows_of<kPart>(tile, part * kPart);
  }

  template <class... Tiles>
  KITTENS_DEVICE static void mma_fence(Tiles&...) {}
  KITTENS_DEVICE static void mma_commit_group() {}
  template <int Groups = 0, class... Tiles>
  KITTENS_DEVICE static void mma_async_wait(Tiles&...) {}

  template <class D, class A, class B>
  KITTENS_DEVICE static void mm_ABt(D& d, const A& a, const B& b) {
    kittens::mm_ABt(d, a, b);
  }
  template <class D, class A, class B>
  KITTENS_DEVICE static void mm_AB(D& d, const A& a, const B& b) {
    kittens::mm_AB(d, a, b);
  }
  template <class D, class A, class B>
  KITTENS_DEVICE static void mma_AB(D& d, const A& a, const B& b) {
    kittens::mma_AB(d, a, b, d);
  }
  template <class Tile, class Registers>
  KITTENS_DEVICE static void store(Tile& tile, const Registers& rows) {
    warpgroup::store_unfenced(tile, rows);
  }
};

template <class Config>
using products_of = std::conditional_t<Config::generic, warp_products, warpgroup_products>;

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
