// attention_decode: blocks with equal parts of the tiles of keys (attention_decode_work.cuh).
//
// Memory-bound: keys and values are read once for each tile of queries, past the first-level
// cache, through a ring of each warp's own, in which loads run on from item to item. Where an item
// ends, the warps add up what they have. Of an item that a block has alone it writes the output; of
// one that it shares, its part, and the block that is the last to write one adds up all
// (attention_decode_combine.cuh).
#pragma once

#include "kernels/attention_decode/attention_decode_combine.cuh"
#include "kernels/attention_decode/attention_decode_item.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// A team's first item, if it begins before its range, and its last, if it ends behind.
inline constexpr int kSplitItems = 2;

// Of a warp. Tiles of keys and of values take turns.
template <class Config>
struct decode_ring {
  typename Config::tile slots[Config::slots];

  KITTENS_DEVICE static int after(int slot) { return slot + 1 == Config::slots ? 0 : slot + 1; }
};
template <class Config>
struct decode_shared {
  decode_ring<Config> rings[kWarps];
  decode_exchange<Config> exchanges[kWarps];
  split_item split[kWarps][kSplitItems];
  int to_add[kSplitItems];  // whether this block adds the parts up
};

// What loads a warp's tiles, ahead of the products: each into the slot that has just been read.
template <class Config>
class decode_loader {
  using cache_type = typename Config::cache_type;
  using tile_type = typename Config::tile;
  static constexpr int kRuns = tile_type::cols / 8;  // of 16 bytes of a row
  static constexpr int kRead = Config::steps * 2;    // of them those that products read
  static constexpr int kRowsAtOnce = kWarp / kRuns;  // of 12 runs, too, which leave 8 lanes over

 public:
  // Of each `step` tiles from `at` on, which is the first of `left`, the one of this turn.
  KITTENS_DEVICE decode_loader(const decode_arguments& p, decode_ring<Config>& ring,
                               const tile_cursor& at, const team_place<Config::warps>& team,
                               int left)
      : p(p), ring(ring), at(at), step(team.step), left(left) {
    go_on(team.turn);
  }

  // Starts the copies of the next tile's keys, the next time of its values.
  KITTENS_DEVICE void request() {
    if (left > 0) {
      load(ring.slots[slot], values ? p.tensors.v : p.tensors.k,
           values ? p.v_strides : p.k_strides);
      slot = decode_ring<Config>::after(slot);
      values = !values;
      if (!values) go_on(step);
    }
    arch::cp_async_commit();  // of nothing, too: waits count groups
  }

 private:
  // What no query sees becomes zero, and so does a column that there is not.
  KITTENS_DEVICE void load(tile_type& tile, const void* cache,
                           const decode_strides& strides) const {
    const int r = arch::lane_id() / kRuns, run = arch::lane_id() % kRuns;
    const int to = tile_type::index(r, run * 8);
    const int unseen = at.keys.first - at.first_key();
    int end = at.keys.length - at.first_key();
    const int column = first_column<Config>() + run * 16 / int(sizeof(cache_type));
    if (Config::is_padded && column >= p.head_dim) end = 0;
    const int64_t place = page * strides.batch + token * strides.token;
    const auto* from = static_cast<const cache_type*>(cache) +
                       key_head_of<Config>(at.key_head) * strides.head + column;
    const auto copy = [&](int first, const cache_type* row) {
      arch::cp_async_evict_first</*Uniform=*/false>(
          &tile.data[detail::moved_index<tile_type>(to, first, 0)], row,
          first + r >= unseen && first + r < end);
    };
    const bool reads = (kRead == kRuns || run < kRead) && (kWarp % kRuns == 0 || r < kRowsAtOnce);
    if (p.tiles_are_runs) {
      if (!reads) return;
      from += place + r * strides.token;
#pragma unroll
      for (int first = 0; first < kKeys; first += kRowsAtOnce) {
        copy(first, from);
        from += kRowsAtOnce * strides.token;
      }
      return;
    }
#pragma unroll 2
    for (int first = 0; first < kKeys; first += kRowsAtOnce) {
      const int64_t row = arch::shuffle(place, first + r);
      if (reads) copy(first, from + row);
    }
  }

  KITTENS_DEVICE void go_on(int tiles) {
    left -= tiles;
    if (left <= 0) return;
    at.advance(p, tiles);
    look_up();
  }

  // Where the tile's first key lies, or this lane's, where those of a tile may lie in several
  // pages. (A tile ahead, for the table takes a while to answer.)
  KITTENS_DEVICE void look_up() {
    const int key = at.first_key() + (p.tiles_are_runs ? 0 : arch::lane_id());
    page = at.b;
    token = key;
    if (!p.paged) return;
    page = token = 0;
    if (key >= at.keys.length || (!p.tiles_are_runs && key < at.keys.first)) return;
    const int column = p.by_page_size.of(key);
    token = key - column * p.page_size;
    const int entry = arch::load_global(p.tensors.table + at.b * p.table_stride + column);
    page = smaller(larger(entry, 0), p.pages - 1);
  }

  const decode_arguments& p;
  decode_ring<Config>& ring;
  tile_cursor at;
  int step, left;  // tiles from the one at hand on
  int slot = 0;
  bool values = false;
  int page = 0, token = 0;  // what look_up found
};

// Where this team's part of an item is one of several, of its tiles first … end − 1: what there is
// to know of them.
template <class Config>
KITTENS_DEVICE void note_split(const decode_arguments& p, const tile_ranges& all,
                               decode_shared<Config>& shared, const team_place<Config::warps>& team,
                               const tile_cursor& at, int first, int end) {
  const int item = first - at.tile, item_end = item + at.tiles;  // all of its tiles
  const int from = at.tile == 0 ? team.range : all.owner_of(item);
  const int to = end == item_end ? team.range : all.owner_of(item_end - 1);
  if (from == to || arch::lane_id() != 0) return;
  shared.split[arch::warp_id()][at.tile == 0 ? 1 : 0] = {
      at.rows(p), team.team - ((team.range - from) << p.abreast), to - from + 1, team.range - from};
}

// Adds up what the warps of a team have of an item, all of its tiles or some, and writes it.
template <class Config>
KITTENS_DEVICE void end_segment(const decode_arguments& p, decode_shared<Config>& shared,
                                const team_place<Config::warps>& team, const tile_cursor& at,
                                decode_item<Config>& item, bool all) {
  const item_rows rows = at.rows(p);
  auto* const records = part_records<Config>(p, 2 * team.team + (at.tile == 0 ? 1 : 0));
  item.add_up();
#pragma unroll 1
  for (int half = 0; half < Config::halves && half * kHalfRows < rows.count; ++half) {
    team.sync(p);  // what the warps had before has been read
    item.give(shared.exchanges[arch::warp_id()].part, at, half);
    team.sync(p);
    const int count = smaller(rows.count - half * kHalfRows, kHalfRows);
#pragma unroll 1
    for (int row = team.turn; row < count; row += team.step) {
      const auto sum = combine_warps<Config>(&shared.exchanges[team.first_warp()], team.step, row);
      const int of_item = half * kHalfRows + row;
      if (all) {
        const int key_head = key_head_of<Config>(rows.key_head);
        store_output<Config>(output_row(p, rows.b, key_head, rows.first + of_item), sum);
      } else {
        store_part<Config>(records[of_item], sum);
      }
    }
  }
  if (Config::slices > 1) team.sync(p);  // the next item's scores lie where parts have been read
}

// Whether this block is the last of `count`, by a counter, which the last one leaves 0: then what
// the others wrote is seen. Of one thread, when all of the block have written and met.
KITTENS_DEVICE bool is_last(int* counter, int count) {
  arch::fence_device();
  const bool last = arch::atomic_add(counter, 1) == count - 1;
  if (last) {
    arch::fence_device();
    arch::atomic_exchange(counter, 0);
  }
  return last;
}

// Adds up the items, and groups of their parts, of which this block is the last to have written.
template <class Config>
KITTENS_DEVICE void add_parts(const decode_arguments& p, decode_shared<Config>& shared,
                              const team_place<Config::warps>& team) {
  arch::sync_block();  // all of the block's parts are written
  if (arch::thread_id() < kSplitItems) {
    const split_item& item = shared.split[0][arch::thread_id()];
    const int count = item.in_groups() ? item.group_end() - item.group_first() : item.parts;
    shared.to_add[arch::thread_id()] =
        count == 1 ||
        (count > 1 && is_last(item.in_groups() ? item.group_counter(p) : item.counter(p), count));
  }
  arch::sync_block();
#pragma unroll 1
  for (int i = 0; i < kSplitItems; ++i) {
    if (arch::load_shared(&shared.to_add[i]) == 0) continue;
    const split_item item = shared.split[arch::warp_id()][i];
    part_range all{0, item.parts, 1};
    if (item.in_groups()) {
      const part_range group{item.group_first(), item.group_end(), 1};
#pragma unroll 1
      for (int row = team.turn; row < item.rows.count; row += team.step) {
        store_part<Config>(part_records<Config>(p, item.slot(p, group.first))[row],
                           combine_parts<Config>(p, item, group, row));
      }
      arch::sync_block();  // the groups of all teams are written
      if (arch::thread_id() == 0) shared.to_add[i] = is_last(item.counter(p), item.groups());
      arch::sync_block();
      if (arch::load_shared(&shared.to_add[i]) == 0) continue;
      all.step = kPartsAhead;
    }
#pragma unroll 1
    for (int row = team.turn; row < item.rows.count; row += team.step) {
      const int key_head = key_head_of<Config>(item.rows.key_head);
      const output_row out(p, item.rows.b, key_head, item.rows.first + row);
      store_output<Config>(out, combine_parts<Config>(p, item, all, row));
    }
  }
}

// Of sequences without keys.
template <class Config>
KITTENS_DEVICE void clear_outputs(const decode_arguments& p) {
  for (int b = arch::block_x(); b < p.batch; b += p.blocks) {
    if (tiles_of(p, b) != 0) continue;
    constexpr int kTurn = Config::warps;
    for (int i = arch::warp_id() / kTurn; i < p.key_heads * p.rows(); i += kWarps / kTurn) {
      const int key_head = key_head_of<Config>(i / p.rows());
      store_output<Config>(output_row(p, b, key_head, i % p.rows()), {});
    }
  }
}

// The tiles of the team's range.
template <class Config>
KITTENS_DEVICE void decode_range(const decode_arguments& p, const tile_sums& sums,
                                 const tile_ranges& all, decode_shared<Config>& shared,
                                 const team_place<Config::warps>& team) {
  constexpr int kSlots = Config::slots;
  const int first = all.first_of(team.range), end = all.first_of(team.range + 1);
  tile_cursor at(team.place);
  at.seek(p, sums, first);
  decode_ring<Config>& ring = shared.rings[arch::warp_id()];
  decode_loader<Config> loader(p, ring, at, team, end - first);
  decode_item<Config> item(p, &shared.exchanges[arch::warp_id()]);
  int mine = first + team.turn, requested = 0, slot = 0;
  const auto fill_ring = [&] {
#pragma unroll 1  // as below: what is run once is short, for code comes from memory, too
    for (; requested < kSlots; ++requested) loader.request();
  };
  if constexpr (!Config::queries_first) fill_ring();
#pragma unroll 1
  for (int begin = first; begin < end;) {
    const int stop = smaller(end, begin - at.tile + at.tiles);
    item.begin(at);
    if constexpr (Config::queries_first) fill_ring();
    note_split<Config>(p, all, shared, team, at, begin, stop);
#pragma unroll 1
    for (; mine < stop; mine += team.step) {
#pragma unroll 1
      for (int values = 0; values < 2; ++values) {
        if (values) item.soften(at.first_key() + (mine - begin) * kKeys);
        arch::cp_async_wait<kSlots - 1>();
        arch::sync_warp();  // all lanes' copies have landed
        if (values) {
          item.add_values(ring.slots[slot]);
        } else {
          item.score(ring.slots[slot]);
        }
        arch::sync_warp();  // all have read them
        loader.request();
        slot = decode_ring<Config>::after(slot);
      }
    }
    end_segment<Config>(p, shared, team, at, item, stop - begin == at.tiles);
    if (stop < end) at.advance(p, stop - begin);
    begin = stop;
  }
}

template <class Config>
__global__ __launch_bounds__(kWarps* kWarp,
                             1) void attention_decode(const __grid_constant__ decode_arguments p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<decode_shared<Config>*>(arch::dynamic_shared());
  const tile_sums sums = tile_sums::of(p);
  const tile_ranges all = tile_ranges::of(p, sums.all);
  const auto team = team_place<Config::warps>::of(p);
  if (arch::lane_id() < kSplitItems) shared.split[arch::warp_id()][arch::lane_id()].parts = 0;
  arch::sync_warp();
  decode_range<Config>(p, sums, all, shared, team);
  add_parts<Config>(p, shared, team);
  if (sums.some_empty) clear_outputs<Config>(p);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
