// attention_decode, cache_append: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/attention_decode.h: what the ops compute.)
#pragma once

#include <cstdint>
#include <iterator>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/attention_decode.h"

namespace thunderkittens {

inline constexpr int kDecodeRows = 16;  // of a tile of queries: query token × head of a group
inline constexpr int kDecodeKeys = 32;  // of a tile of keys
inline constexpr int kDecodeWarps = 8;  // of a block
// Parts of a row that a warp has on their way at once: of one sequence with 8 key heads 132 blocks
// have up to 18 of each, which then cost one trip to memory.
inline constexpr int kDecodePartsAhead = 18;
// Of an item that one block adds up: two trips take as long as meeting once more.
inline constexpr int kDecodeMostParts = 2 * kDecodePartsAhead;
inline constexpr int kDecodeRecordFloats = 8;  // of a record, behind those of the columns
inline constexpr int64_t kDecodeMaxQueries = 16;
inline constexpr int64_t kDecodeMinPage = 16;

// The heads that a form of the kernel takes: slices · columns, or fewer, and zeros then. Warps that
// have a tile of keys together have a slice each. A step of its products is 16 columns, of a cache
// of e4m3 32, so that two forms have no e4m3.
struct decode_heads {
  int64_t least, most, columns;
  int slices;
  bool e4m3;

  constexpr bool takes(int64_t head_dim, bool of_e4m3) const {
    return least <= head_dim && head_dim <= most && (e4m3 || !of_e4m3);
  }
  constexpr bool is_padded() const { return least < slices * columns; }
};

// clang-format off
inline constexpr decode_heads kDecodeHeads[] = {  // of those that take a head the first one
    // least most columns slices e4m3
    {     64,  64,     64,     1, true },
    {      1,  80,     80,     1, false},
    {      1,  96,     96,     1, true },
    {     97, 112,    112,     1, false},
    {    128, 128,    128,     1, true },
    {     97, 127,    128,     1, true },
    {    129, 192,     96,     2, true },
    {    193, 256,    128,     2, true },
};
// clang-format on
inline constexpr int64_t kDecodeMostHeadDim = std::end(kDecodeHeads)[-1].most;

// Of a head_dim of 1 … kDecodeMostHeadDim.
constexpr const decode_heads& decode_heads_of(int64_t head_dim, bool e4m3) {
  const decode_heads* heads = kDecodeHeads;
  while (!heads->takes(head_dim, e4m3)) ++heads;
  return *heads;
}

// An item is a tile of queries of one key head of one sequence; what it needs of the keys is its
// tiles. The tiles of all items, one after the other, are cut into equal parts, one a block.
struct attention_decode_params {
  attention_decode_problem problem;
  attention_decode_tensors tensors;
  void* parts;    // [2 · teams, slices, kDecodeRows] records: Σ exp(s − max s) v of a row of a part
                  // of an item, max s and Σ exp(s − max s); s in powers of two
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

// Tiles of kDecodeRows that a key head's queries make, each a query token of a head.
inline int64_t decode_row_tiles(const attention_decode_problem& p) {
  return (p.queries * (p.heads / p.key_heads) + kDecodeRows - 1) / kDecodeRows;
}
inline int64_t decode_items(const attention_decode_problem& p) {
  return p.batch * p.key_heads * decode_row_tiles(p);
}

inline constexpr kittens::host::kernel_entry<attention_decode_params> kAttentionDecode{
    "attention_decode"};
inline constexpr kittens::host::kernel_entry<cache_append_params> kCacheAppend{"cache_append"};

}  // namespace thunderkittens
