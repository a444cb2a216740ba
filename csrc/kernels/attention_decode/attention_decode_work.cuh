// attention_decode: what there is to do, and who does it. The lengths are on the device, so each
// worker (a warp) finds out by itself.
//
//   item     a tile of 16 queries (token × head of the group) of one key head of one sequence
//   tile     32 keys that an item needs, at a position that is a multiple of 32
//   worker   has the tiles total · w / workers … total · (w + 1) / workers − 1 of all items, which
//            follow each other by sequence, key head and tile of queries
#pragma once

#include <kittens.cuh>

#include "kernels/attention_decode/attention_decode.h"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kRows = kDecodeRows, kKeys = kDecodeKeys, kWarps = kDecodeWarps;

struct decode_arguments {
  attention_decode_tensors tensors;
  float* parts;
  float* sums;
  int* owners;
  decode_strides q_strides, o_strides, k_strides, v_strides;
  int64_t table_stride;
  int batch, queries, group, key_heads, row_tiles;
  int pages, page_size, table_width, capacity;
  int left;  // at most the capacity
  int workers;
  float scale;    // of q · k: to powers of two, or to what tanh takes
  float softcap;  // times log2 e; 0: none
  bool paged;

  // Of one sequence.
  KITTENS_DEVICE int items() const { return key_heads * row_tiles; }
  KITTENS_DEVICE int rows() const { return queries * group; }
};

KITTENS_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
KITTENS_DEVICE int larger(int a, int b) { return a > b ? a : b; }

// Whatever seqlens holds, keys are those of the cache.
KITTENS_DEVICE int length_of(const decode_arguments& p, int b) {
  return smaller(larger(arch::load_global(p.tensors.seqlens + b), 0), p.capacity);
}

// The keys that the queries of a sequence see, first … length − 1.
struct needed_keys {
  int first, length;

  KITTENS_DEVICE static needed_keys of(const decode_arguments& p, int length) {
    return {larger(length - p.queries - p.left, 0), length};
  }
  KITTENS_DEVICE int first_tile() const { return first / kKeys; }
  KITTENS_DEVICE int tiles() const { return (length + kKeys - 1) / kKeys - first_tile(); }
};

KITTENS_DEVICE int tiles_of(const decode_arguments& p, int b) {
  return b < p.batch ? needed_keys::of(p, length_of(p, b)).tiles() : 0;
}

// Of all items. All lanes call.
KITTENS_DEVICE int all_tiles(const decode_arguments& p) {
  int sum = 0;
#pragma unroll 4
  for (int b = arch::lane_id(); b < p.batch; b += kWarp) sum += tiles_of(p, b);
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += arch::shuffle_xor(sum, mask);
  return sum * p.items();
}

// At most as many workers as tiles: each has some, and so a part of what lies between its ends.
struct worker_range {
  int workers, total;

  KITTENS_DEVICE static worker_range of(const decode_arguments& p) {
    const int total = all_tiles(p);
    return {smaller(p.workers, total), total};
  }
  KITTENS_DEVICE int first_of(int worker) const { return int(int64_t{total} * worker / workers); }
  // The worker that has a tile.
  KITTENS_DEVICE int owner_of(int tile) const {
    return int(((int64_t{tile} + 1) * workers - 1) / total);
  }
};

// Goes through the tiles of all items.
class tile_cursor {
 public:
  int b = 0, item = 0, tile = 0;  // the item of the sequence, the tile of the item
  int tiles = 0;                  // of each item of the sequence
  needed_keys keys = {};

  // At a tile of all items, of which there are more. All lanes call.
  KITTENS_DEVICE void seek(const decode_arguments& p, int target) {
    int before = 0;
    for (int from = 0; from < p.batch; from += kWarp) {
      int sum = tiles_of(p, from + arch::lane_id()) * p.items();
#pragma unroll
      for (int delta = 1; delta < kWarp; delta *= 2) {
        const int other = arch::shuffle_up(sum, delta);
        if (arch::lane_id() >= delta) sum += other;
      }
      const unsigned past = arch::ballot(before + sum > target);
      if (past != 0) {
        const int lane = arch::popc((past & (0u - past)) - 1);  // the first of them
        enter(p, from + lane);
        const int in_sequence = target - before - (arch::shuffle(sum, lane) - tiles * p.items());
        item = in_sequence / tiles;
        tile = in_sequence % tiles;
        return;
      }
      before += arch::shuffle(sum, kWarp - 1);
    }
  }

  KITTENS_DEVICE void advance(const decode_arguments& p) {
    if (++tile < tiles) return;
    tile = 0;
    if (++item < p.items()) return;
    item = 0;
    tiles = 0;
    while (tiles == 0 && b + 1 < p.batch) enter(p, b + 1);
  }

  KITTENS_DEVICE bool is_first() const { return tile == 0; }
  KITTENS_DEVICE bool is_last() const { return tile == tiles - 1; }
  KITTENS_DEVICE int first_key() const { return (keys.first_tile() + tile) * kKeys; }
  KITTENS_DEVICE int key_head(const decode_arguments& p) const { return item / p.row_tiles; }
  KITTENS_DEVICE int first_row(const decode_arguments& p) const {
    return item % p.row_tiles * kRows;
  }

 private:
  KITTENS_DEVICE void enter(const decode_arguments& p, int sequence) {
    b = sequence;
    keys = needed_keys::of(p, length_of(p, b));
    tiles = keys.tiles();
  }
};

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
