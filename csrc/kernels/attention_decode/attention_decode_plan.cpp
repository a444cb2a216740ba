// attention_decode, cache_append: what is chosen before a launch, and the launch.
#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "kernels/attention_decode/attention_decode.h"
#include "kittens/host/ceil_div.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::ceil_div;
using kittens::host::text;

constexpr int64_t kBlocksTogether = 16;
constexpr int64_t kFewParts = 16;    // of an item, which are added up in one trip
constexpr int64_t kShortShare = 16;  // tiles of a warp
constexpr int64_t kMost = std::numeric_limits<int>::max();

int64_t items_of(const attention_decode_problem& p) {
  return decode_items(p, decode_heads_of(p).heads);
}

// Of an item: each is what one warp has of the keys and values of kDecodeKeys keys.
int64_t decode_tiles(const attention_decode_problem& p) {
  return ceil_div(p.cache.capacity(), int64_t{kDecodeKeys}) * decode_heads_of(p).warps();
}

// At most one for each multiprocessor, whose shared memory it takes most of, and not more than
// there are tiles for their warps if all sequences fill their caches; where items have several
// blocks anyway, for half of their warps, which are done sooner, as long as parts stay few. A
// multiple of 16, as are most numbers of items: then blocks end where items do, and heads side by
// side stay so. Memory is as busy with 128 blocks as with 132.
int64_t decode_blocks(const attention_decode_problem& p, int64_t multiprocessors) {
  const int64_t items = items_of(p);
  const int64_t tiles = items * decode_tiles(p);
  int64_t blocks = ceil_div(tiles, int64_t{kDecodeWarps});
  if (blocks > items) {
    const int64_t half = ceil_div(tiles, int64_t{kDecodeWarps / 2});
    blocks = std::max(blocks, std::min(half, kFewParts * items));
  }
  blocks = std::clamp<int64_t>(blocks, 1, multiprocessors);
  return blocks < kBlocksTogether ? blocks : blocks / kBlocksTogether * kBlocksTogether;
}

// 2^what warps of a block have an item together: all; fewer where that leaves a warp few tiles, and
// each team still whole items, if all sequences have one length. Those of a block are of one
// sequence, and a team has all warps of a turn.
int decode_share(const attention_decode_problem& p, int64_t blocks) {
  const int64_t items = items_of(p), of_sequence = items / p.batch;
  const int64_t tiles = decode_tiles(p);
  const int least = std::countr_zero(uint64_t(decode_heads_of(p).warps()));
  int share = std::countr_zero(unsigned(kDecodeWarps));
  for (int64_t of_block = 2; share > least && tiles >> share < kShortShare;
       of_block *= 2, --share) {
    if (items % (blocks * of_block) != 0 || of_sequence % of_block != 0) break;
  }
  return share;
}

// Bytes of the parts of all teams.
int64_t parts_bytes(const attention_decode_problem& p, int64_t blocks) {
  const int64_t teams = blocks * kDecodeWarps >> decode_share(p, blocks);
  const int64_t floats = decode_heads_of(p).columns + kDecodeRecordFloats;
  const int64_t records = 2 * teams * decode_heads_of(p).warps() * decode_rows(p);
  return records * floats * int64_t{sizeof(float)};
}

// An item has at most 1 / items of all tiles, and a range at least half of an equal part, or a
// tile.
int64_t decode_counters(const attention_decode_problem& p, int64_t blocks) {
  const int64_t teams = blocks * kDecodeWarps >> decode_share(p, blocks);
  const int64_t of_sequence = items_of(p) / p.batch;
  const int64_t most_parts = 2 * teams / of_sequence + 2;
  return most_parts > kDecodeMostParts ? 2 * blocks : blocks;
}

std::string why_cache_unsupported(const decode_cache& c, int64_t batch) {
  // Positions and tables are counted in int, with room for what is added to them.
  if (c.pages > kMost || c.capacity() > kMost / 4 || c.table_width > kMost / 4 ||
      batch > kMost / 4) {
    return text(batch, " sequences of ", c.capacity(), " keys are too many");
  }
  return "";
}

}  // namespace

std::string why_unsupported(const attention_decode_problem& p) {
  if (p.type == dtype::float32) return "float32 is computed by torch";
  const int64_t vector = p.cache.e4m3 ? 16 : 8;  // elements of 16 bytes
  if (p.head_dim % vector != 0 || p.head_dim > kDecodeMostHeadDim) {
    return text("head dimension ", p.head_dim, " is not a multiple of ", vector, " up to ",
                kDecodeMostHeadDim);
  }
  if (p.queries > kDecodeMaxQueries) {
    return text(p.queries, " query tokens are more than ", kDecodeMaxQueries);
  }
  if (p.cache.paged && p.cache.page_size < kDecodeMinPage) {
    return text("pages of ", p.cache.page_size, " keys are smaller than ", kDecodeMinPage);
  }
  if (std::string why = why_cache_unsupported(p.cache, p.batch); !why.empty()) return why;
  const int64_t tiles = decode_tiles(p);
  if (p.key_heads > 0 &&
      (p.heads > kMost / 64 || decode_row_tiles(p) > kMost / p.key_heads ||
       p.batch > kMost / 2 / std::max<int64_t>(1, p.key_heads * decode_row_tiles(p)) ||
       tiles > kMost / std::max<int64_t>(1, items_of(p)))) {
    return text(p.batch, " batches of ", p.heads, " heads with ", p.cache.capacity(),
                " keys are too many");
  }
  return "";
}

std::string why_unsupported(const cache_append_problem& p) {
  if (std::string why = why_cache_unsupported(p.cache, p.batch); !why.empty()) return why;
  if (p.tokens > kMost / 4 || p.key_heads > kMost || p.head_dim > kMost) {
    return text(p.tokens, " tokens of ", p.key_heads, " heads of ", p.head_dim, " are too many");
  }
  return "";
}

attention_decode_plan plan(const attention_decode_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kAttentionDecode);
  refuse_unsupported(kernel.name(), p);
  const int64_t blocks = decode_blocks(p, d.multiprocessors);
  attention_decode_plan plan{{p, kernel.on(d)}, static_cast<int>(blocks)};
  plan.workspace = {.bytes = parts_bytes(p, blocks), .counters = decode_counters(p, blocks)};
  return plan;
}

cache_append_plan plan(const cache_append_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kCacheAppend);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

void launch(const attention_decode_plan& plan, const attention_decode_tensors& t,
            const workspace& work, stream s) {
  plan.kernel.launch({.problem = plan.problem,
                      .tensors = t,
                      .parts = work.memory,
                      .counters = work.counters,
                      .blocks = plan.blocks,
                      .share = decode_share(plan.problem, plan.blocks)},
                     s);
}

void launch(const cache_append_plan& plan, const cache_append_tensors& t, const workspace&,
            stream s) {
  plan.kernel.launch({plan.problem, t}, s);
}

}  // namespace thunderkittens
