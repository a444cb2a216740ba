// attention_decode: what there is to do, and who does it. The lengths are on the device, so each
// warp finds out by itself.
//
//   item     a tile of 16 queries (token × head of the group), or all, if they are 8 at most, of
//            one key head of one sequence; by pairs, of each of two neighbouring key heads, which
//            count as one
//   tile     32 keys that an item needs, at a position that is a multiple of 32
//   column   2^abreast items of a sequence whose keys lie side by side: what is read at once of a
//            cache [.., token, key head, D] is one run of it
//   team     2^share warps of a block, which have the tiles of an item in turn. So many teams as a
//            column has items have the same range, each at its place in the columns
//   turn     of the warps of a team, those that have a tile together: neighbours, of which each has
//            a slice of a wide head's columns, and adds the others' parts of the scores to its own;
//            or a key head of the item
//   range    an equal part of the tiles of all columns, which follow each other by sequence, key
//            head and tile of queries. The same for all warps of a block
//   part     what a team has of an item that begins or ends in another range
#pragma once

#include <kittens.cuh>

#include "kernels/attention_decode/attention_decode.h"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kRows = kDecodeRows, kKeys = kDecodeKeys, kWarps = kDecodeWarps;
inline constexpr int kHalfRows = kRows / 2;
inline constexpr int kPartsAhead = kDecodePartsAhead;
static_assert(kPartsAhead <= kWarp, "lane i has the sums of part i");

// A number that others are divided by, as n · multiplier / 2^shift: a division takes 25
// instructions.
struct divisor {
  unsigned multiplier;
  int shift;

  // Exact of n ≥ 0: multiplier · d is 2^shift and less than 2^(shift − 31) more.
  KITTENS_DEVICE int of(int n) const { return int(uint64_t{unsigned(n)} * multiplier >> shift); }
};

struct decode_arguments {
  attention_decode_tensors tensors;
  void* parts;
  int* counters;
  decode_strides q_strides, o_strides, k_strides, v_strides;
  int64_t table_stride;
  int batch, queries, group;
  int key_heads;  // those of an item count as one
  int row_tiles;
  int pages, page_size, table_width, capacity;
  int left;  // at most the capacity
  divisor by_group, by_row_tiles, by_page_size;
  int blocks;
  int share, abreast;  // 2^abreast divides teams() and items(), and is at least a block's teams
  float scale;         // of q · k: to powers of two, or to what tanh takes
  float softcap;       // times log2 e; 0: none
  bool paged;
  bool tiles_are_runs;  // no tile lies in two pages
  int head_dim;         // of a padded form

  KITTENS_DEVICE int teams() const { return blocks * kWarps >> share; }
  // Of one sequence.
  KITTENS_DEVICE int items() const { return key_heads * row_tiles; }
  KITTENS_DEVICE int rows() const { return queries * group; }
  KITTENS_DEVICE int columns() const { return items() >> abreast; }
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

// Of the lanes up to this one. All lanes call.
KITTENS_DEVICE int sum_up_to(int value) {
#pragma unroll
  for (int delta = 1; delta < kWarp; delta *= 2) {
    const int other = arch::shuffle_up(value, delta);
    if (arch::lane_id() >= delta) value += other;
  }
  return value;
}

// Tiles of all columns.
struct tile_sums {
  int all = 0;
  int up_to = 0;            // of 32 sequences, those up to this lane's: of the last 32
  bool some_empty = false;  // a sequence without keys

  // All lanes call.
  KITTENS_DEVICE static tile_sums of(const decode_arguments& p) {
    tile_sums sums;
#pragma unroll 1
    for (int from = 0; from < p.batch; from += kWarp) {
      const int b = from + arch::lane_id(), tiles = tiles_of(p, b);
      sums.up_to = sum_up_to(tiles * p.columns());
      sums.all += arch::shuffle(sums.up_to, kWarp - 1);
      sums.some_empty |= arch::vote_any(tiles == 0 && b < p.batch);
    }
    return sums;
  }
};

// Which tiles a range has; none, if there are fewer tiles than ranges.
struct tile_ranges {
  int each, longer;  // the first `longer` ranges have a tile more

  KITTENS_DEVICE static tile_ranges of(const decode_arguments& p, int total) {
    const int ranges = p.teams() >> p.abreast, each = total / ranges;
    return {each, total - each * ranges};
  }
  KITTENS_DEVICE int first_of(int range) const { return range * each + smaller(range, longer); }
  // The range that has a tile.
  KITTENS_DEVICE int owner_of(int tile) const {
    const int behind = tile - longer * (each + 1);
    return behind < 0 ? tile / (each + 1) : longer + behind / each;
  }
};

// An item: up to 16 rows, token × head of the group, of a key head.
struct item_rows {
  int b, key_head, first, count;
};

// An item that several teams have parts of. Of more than kDecodeMostParts the last block of each
// group of kPartsAhead adds up those of its group, so that several multiprocessors load what one
// would load at its own rate, trip after trip; the last of the groups adds up the groups.
struct split_item {
  item_rows rows;
  int first, parts;  // teams: the first, and how many, 2^abreast apart
  int part;          // this team's

  KITTENS_DEVICE int team_of(const decode_arguments& p, int of_part) const {
    return first + (of_part << p.abreast);
  }
  // The first team has it last, the others first. Of a group: of its first part.
  KITTENS_DEVICE int slot(const decode_arguments& p, int of_part) const {
    return 2 * team_of(p, of_part) + (of_part == 0 ? 1 : 0);
  }
  KITTENS_DEVICE bool in_groups() const { return parts > kDecodeMostParts; }
  KITTENS_DEVICE int groups() const { return (parts + kPartsAhead - 1) / kPartsAhead; }
  // Of this team's group: the first part, and the one behind the last.
  KITTENS_DEVICE int group_first() const { return part - part % kPartsAhead; }
  KITTENS_DEVICE int group_end() const { return smaller(group_first() + kPartsAhead, parts); }

  // Of the item, for its groups, or for its parts if it has none; and of this team's group. Where
  // the item begins, and where the group does: none else begins there, for what begins with an
  // item's last part is a group of one, which nobody counts.
  KITTENS_DEVICE int* counter(const decode_arguments& p) const {
    return p.counters + (first << p.share) / kWarps;
  }
  KITTENS_DEVICE int* group_counter(const decode_arguments& p) const {
    return p.counters + p.blocks + (team_of(p, group_first()) << p.share) / kWarps;
  }
};

// What this warp's team does, and which of the `step` turns is this one's.
template <int WarpsOfTurn>
struct team_place {
  int turn, step;
  int team, range, place;

  KITTENS_DEVICE static team_place of(const decode_arguments& p) {
    const int warps = 1 << p.share, team = (arch::block_x() * kWarps + arch::warp_id()) >> p.share;
    return {(arch::warp_id() & (warps - 1)) / WarpsOfTurn, warps / WarpsOfTurn, team,
            team >> p.abreast, team & ((1 << p.abreast) - 1)};
  }
  KITTENS_DEVICE static int of_turn() { return arch::warp_id() % WarpsOfTurn; }
  // The team's warp that has at the first turn what this one has.
  KITTENS_DEVICE int first_warp() const { return arch::warp_id() - turn * WarpsOfTurn; }

  KITTENS_DEVICE void sync(const decode_arguments& p) const {
    if (p.share == 0) return arch::sync_warp();
    arch::named_barrier_sync(1 + (arch::warp_id() >> p.share), step * WarpsOfTurn * kWarp);
  }
  KITTENS_DEVICE static void sync_turn() {
    arch::named_barrier_sync(1 + kWarps + arch::warp_id() / WarpsOfTurn, WarpsOfTurn * kWarp);
  }
};

// Goes through the tiles of all columns, at one place of each.
class tile_cursor {
 public:
  int b = 0, column = 0, tile = 0;  // the column of the sequence, the tile of the column
  int tiles = 0;                    // of each column of the sequence
  needed_keys keys = {};
  int key_head = 0, first_row = 0;  // of the item: key_head_of

  KITTENS_DEVICE explicit tile_cursor(int place) : place(place) {}

  // At a tile of all columns, of which there are more. All lanes call.
  KITTENS_DEVICE void seek(const decode_arguments& p, const tile_sums& sums, int target) {
    int before = 0, sum = sums.up_to;
#pragma unroll 1
    for (int from = 0; from < p.batch; from += kWarp) {
      if (p.batch > kWarp) sum = sum_up_to(tiles_of(p, from + arch::lane_id()) * p.columns());
      const unsigned past = arch::ballot(before + sum > target);
      if (past != 0) {
        const int lane = arch::popc((past & (0u - past)) - 1);  // the first of them
        enter(p, from + lane);
        const int in_sequence = target - before - (arch::shuffle(sum, lane) - tiles * p.columns());
        tile = in_sequence % tiles;
        enter_column(p, in_sequence / tiles);
        return;
      }
      before += arch::shuffle(sum, kWarp - 1);
    }
  }

  // To a later tile, which is there.
  KITTENS_DEVICE void advance(const decode_arguments& p, int by) {
    tile += by;
    while (tile >= tiles) {
      tile -= tiles;
      if (column + 1 < p.columns()) {
        enter_column(p, column + 1);
        continue;
      }
      enter_column(p, 0);
      do enter(p, b + 1);
      while (tiles == 0);
    }
  }

  KITTENS_DEVICE int first_key() const { return (keys.first_tile() + tile) * kKeys; }
  KITTENS_DEVICE item_rows rows(const decode_arguments& p) const {
    return {b, key_head, first_row, smaller(kRows, p.rows() - first_row)};
  }

 private:
  KITTENS_DEVICE void enter_column(const decode_arguments& p, int next) {
    column = next;
    const int item = (column << p.abreast) + place;
    key_head = p.by_row_tiles.of(item);
    first_row = (item - key_head * p.row_tiles) * kRows;
  }
  KITTENS_DEVICE void enter(const decode_arguments& p, int sequence) {
    b = sequence;
    keys = needed_keys::of(p, length_of(p, b));
    tiles = keys.tiles();
  }

  int place;
};

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
