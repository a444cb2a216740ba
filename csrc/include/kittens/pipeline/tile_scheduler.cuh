// tile_scheduler: which tiles of an output [batch, heads, rows] a persistent block works on.
//
//   const tile_scheduler tiles{.rows = row_tiles, .heads = heads, .batches = batches};
//   for (tile_walk tile(tiles); tile.valid(); tile.next()) {
//     const auto [m, head, batch] = tile.place();
//
// Static: a block takes every grid_x()-th tile; with a block per tile, just its own. Every role of
// a block walks by itself, and all see the same tiles. In the order of tiles m runs fastest, so
// blocks that run together share a head's keys and values in the L2 cache.
//
// Dynamic, for tiles that take different times: with a `counter`, a block's next tile is the first
// one that no block has. Then ONE thread of a block walks, to the end, and tells the others which
// tile it is.
#pragma once

#include "kittens/arch/atomic.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/arch/thread.cuh"

namespace kittens {

// A tile's place: number m of its head's row tiles.
struct tile_place {
  int m, head, batch;
};

struct tile_scheduler {
  int rows = 1, heads = 1, batches = 1;  // tiles along the rows, heads, batches
  // The last m comes first: under a causal mask it is the longest, and the short ones then fill
  // what the long ones leave.
  bool last_first = false;
  // How many (head, batch) pairs at a time go through their tiles together: all their first tiles,
  // then all their second ones. 1: one pair after the other; at most all.
  int together = 1;
  // The tile counter of a dynamic schedule, in global memory: 0 before a launch, and 0 again after
  // it. Launches that may run at the same time have one each. Null: a static schedule.
  int* counter = nullptr;

  KITTENS_INLINE int count() const { return rows * heads * batches; }

  KITTENS_INLINE tile_place place(int tile) const {
    const int section = tile / (rows * together), first = section * together;
    const int left = heads * batches - first;
    const int pairs = left < together ? left : together;  // of this section
    const int inside = tile - section * rows * together;
    const int m = inside / pairs, pair = first + inside - m * pairs;
    const int batch = pair / heads;
    return {last_first ? rows - 1 - m : m, pair - batch * heads, batch};
  }
};

// The tiles of the running block, one after the other.
class tile_walk {
 public:
  KITTENS_DEVICE explicit tile_walk(const tile_scheduler& tiles)
      : tiles_(tiles), tile_(static_cast<unsigned>(arch::block_x())) {}

  KITTENS_DEVICE bool valid() const { return tile_ < static_cast<unsigned>(tiles_.count()); }
  KITTENS_DEVICE void next() {
    const unsigned blocks = static_cast<unsigned>(arch::grid_x());
    if (tiles_.counter == nullptr) {
      tile_ += blocks;
      return;
    }
    const int n = arch::atomic_add(tiles_.counter, 1);
    tile_ = blocks + static_cast<unsigned>(n);
    // The counter is raised once for each tile, a block's last time in vain: this is the launch's
    // last.
    if (n == tiles_.count() - 1) arch::atomic_exchange(tiles_.counter, 0);
  }
  KITTENS_DEVICE tile_place place() const { return tiles_.place(static_cast<int>(tile_)); }

 private:
  const tile_scheduler& tiles_;
  unsigned tile_;  // a grid past the last tile may exceed an int
};

}  // namespace kittens
