// attention_decode, cache_append: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/attention_decode.h: what the ops compute.)
#pragma once

#include <cstdint>
#include <iterator>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/attention_decode.h"

namespace thunderkittens {

inline constexpr int kDecodeRows = 16;    // of a tile of queries: query token × head of a group
inline constexpr int kDecodeFewRows = 8;  // … where all that a key head has are so few
inline constexpr int kDecodeKeys = 32;    // of a tile of keys
inline constexpr int kDecodeWarps = 8;    // of a block
// Parts of a row that a warp has on their way at once: of one sequence with 8 key heads 132 blocks
// have up to 18 of each, which then cost one trip to memory.
inline constexpr int kDecodePartsAhead = 18;
// Of an item that one block adds up: two trips take as long as meeting once more.
inline constexpr int kDecodeMostParts = 2 * kDecodePartsAhead;
inline constexpr int kDecodeRecordFloats = 8;  // of a record, behind those of the columns
inline constexpr int64_t kDecodeMaxQueries = 16;
inline constexpr int64_t kDecodeMinPage = 16;

// The heads that a form of the kernel takes: slices · columns, or fewer, and zeros then. The warps
// of a turn have a slice each of a key head, or a key head each of two neighbours: memory is read
// in units of 64 bytes, and what two heads have of one is read once if they read it at the same
// time. A step of the products is 16 columns, of a cache of e4m3 32, so that some forms have no
// e4m3.
struct decode_heads {
  int64_t least, most, columns;
  int slices, heads;
  bool e4m3;

  constexpr bool takes(int64_t head_dim, bool by_pairs, bool of_e4m3) const {
    return least <= head_dim && head_dim <= most && (by_pairs || heads == 1) && (e4m3 || !of_e4m3);
  }
  constexpr bool is_padded() const { return least < slices * columns; }
  constexpr int warps() const { return slices * heads; }  // of a turn
};

// clang-format off
inline constexpr decode_heads kDecodeHeads[] = {  // of those that take a head the first one
    // least most columns slices heads e4m3
    {     64,  64,     64,     1,    1, true },
    {     65,  80,     80,     1,    2, false},
    {      0,  80,     80,     1,    1, false},
    {      0,  96,     96,     1,    1, true },
    {     97, 112,    112,     1,    2, false},
    {     97, 112,    112,     1,    1, false},
    {    128, 128,    128,     1,    1, true },
    {     97, 127,    128,     1,    2, false},
    {     97, 127,    128,     1,    1, true },
    {    129, 192,     96,     2,    1, true },
    {    193, 256,    128,     2,    1, true },
};
// clang-format on
inline constexpr int64_t kDecodeMostHeadDim = std::end(kDecodeHeads)[-1].most;

// Of a head_dim up to kDecodeMostHeadDim.
constexpr const decode_heads& decode_heads_of(int64_t head_dim, bool by_pairs, bool e4m3) {
  const decode_heads* heads = kDecodeHeads;
  while (!heads->takes(head_dim, by_pairs, e4m3)) ++heads;
  return *heads;
}

// Tiles of all key heads from which on they are taken by pairs, where heads lie side by side and
// rows are not whole units: with 16 of a warp that saves 2 to 8 % on an H200, with 128 17 %; with 8
// between −8 and 4 %, for then there are half as many items, of twice as many parts
// (benchmarks/attention_decode.md).
inline constexpr int64_t kDecodeTilesOfPairs = 16 * 128 * kDecodeWarps;
inline bool decode_by_pairs(const attention_decode_problem& p) {
  const decode_cache& c = p.cache;
  const int64_t tiles = (c.capacity() + kDecodeKeys - 1) / kDecodeKeys;
  return p.key_heads % 2 == 0 && p.head_dim % 32 != 0 && c.k_strides.head == p.head_dim &&
         c.v_strides.head == p.head_dim && p.batch * p.key_heads * tiles >= kDecodeTilesOfPairs;
}
// Of a problem that is not refused.
inline const decode_heads& decode_heads_of(const attention_decode_problem& p) {
  return decode_heads_of(p.head_dim, decode_by_pairs(p), p.cache.e4m3);
}

// An item is a tile of queries of one key head of one sequence; what it needs of the keys is its
// tiles. The tiles of all items, one after the other, are cut into equal parts, one a block.
struct attention_decode_params {
  attention_decode_problem problem;
  attention_decode_tensors tensors;
  void* parts;  // [2 · teams, warps of a turn, decode_rows] records: Σ exp(s − max s) v of a row of
                // a part of an item, max s and Σ exp(s − max s); s in powers of two
  int* counters;  // [blocks], 0: parts that have been written of the items a block ends with, or
                  // groups of parts; where an item may have more than kDecodeMostParts of them,
                  // [2, blocks]: the others are of the groups that begin with a block's part
  int blocks;
  int share;  // 2^share warps of a block have an item together
};

struct cache_append_params {
  cache_append_problem problem;
  cache_append_tensors tensors;
};

// Of a tile of queries.
inline int decode_rows(const attention_decode_problem& p) {
  return p.queries * (p.heads / p.key_heads) <= kDecodeFewRows ? kDecodeFewRows : kDecodeRows;
}
// Tiles of them that a key head's queries make, each a query token of a head.
inline int64_t decode_row_tiles(const attention_decode_problem& p) {
  const int64_t rows = decode_rows(p);
  return (p.queries * (p.heads / p.key_heads) + rows - 1) / rows;
}
// By a form that has so many key heads an item.
inline int64_t decode_items(const attention_decode_problem& p, int heads) {
  return p.batch * (p.key_heads / heads) * decode_row_tiles(p);
}

inline constexpr kittens::host::kernel_entry<attention_decode_params> kAttentionDecode{
    "attention_decode"};
inline constexpr kittens::host::kernel_entry<cache_append_params> kCacheAppend{"cache_append"};

}  // namespace thunderkittens
