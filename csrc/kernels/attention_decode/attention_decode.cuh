// attention_decode: blocks with equal parts of the tiles of keys (attention_decode_work.cuh).
//
// Memory-bound: keys and values are read once for each tile of 16 queries, past the first-level
// cache, through a ring of each warp's own, in which loads run on from item to item. Where an item
// ends, the warps add up what they have. Of an item that a block has alone it writes the output; of
// one that it shares, its part, and the block that is the last to write one adds up all
// (attention_decode_combine.cuh).
#pragma once

#include "kernels/attention_decode/attention_decode_combine.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

template <class Config>
using decode_tile = st<typename Config::type, kKeys, Config::width>;

// A block's first item, if it begins before, and its last, if it ends behind.
inline constexpr int kSplitItems = 2;

template <class Config>
struct decode_ring {
  decode_tile<Config> k[Config::stages], v[Config::stages];
};
template <class Config>
struct decode_shared {
  decode_ring<Config> rings[kWarps];
  decode_part<Config> parts[kWarps];
  split_item split[kSplitItems];
  int to_add[kSplitItems];  // whether this block adds the parts up
};

// What loads a warp's tiles, ahead of the products. Keys and values of a tile are requested apart,
// each into the place that has just been read.
template <class Config>
class decode_loader {
  using T = typename Config::type;
  static constexpr int kRun = 16 / int(sizeof(T)), kRuns = Config::width / kRun;  // of a row
  static constexpr int kRowsAtOnce = kWarp / kRuns;

 public:
  // From the warp's first tile, at which the cursor is if there is one, to those before `end`.
  KITTENS_DEVICE decode_loader(const decode_arguments& p, decode_ring<Config>& ring,
                               const tile_cursor& at, int first, int end)
      : p(p), ring(ring), at(at), next(first), end(end) {
    if (next < end) look_up();
  }

  // Starts the copies of the next tile's keys.
  KITTENS_DEVICE void request_keys() {
    if (next < end) load(ring.k[stage], p.tensors.k, p.k_strides);
    arch::cp_async_commit();  // of nothing, too: waits count groups
  }
  // … of its values, and goes on to the tile after it.
  KITTENS_DEVICE void request_values() {
    if (next < end) {
      load(ring.v[stage], p.tensors.v, p.v_strides);
      next += kWarps;
      stage = stage + 1 == Config::stages ? 0 : stage + 1;
      if (next < end) {
        at.advance(p, kWarps);
        look_up();
      }
    }
    arch::cp_async_commit();
  }

 private:
  // What no query sees becomes zero.
  KITTENS_DEVICE void load(decode_tile<Config>& tile, const void* cache,
                           const decode_strides& strides) const {
    const int r = arch::lane_id() / kRuns, col = arch::lane_id() % kRuns * kRun;
    const int to = decode_tile<Config>::index(r, col);
    const int unseen = at.keys.first - at.first_key(), end = at.keys.length - at.first_key();
    const int64_t place = page * strides.batch + token * strides.token;
    const T* from = static_cast<const T*>(cache) + at.key_head * strides.head + col;
    const auto copy = [&](int first, const T* row) {
      arch::cp_async<16>(&tile.data[detail::moved_index<decode_tile<Config>>(to, first, 0)], row,
                         first + r >= unseen && first + r < end);
    };
    if (p.tiles_are_runs) {
      from += place + r * strides.token;
#pragma unroll
      for (int first = 0; first < kKeys; first += kRowsAtOnce) {
        copy(first, from);
        from += kRowsAtOnce * strides.token;
      }
      return;
    }
#pragma unroll
    for (int first = 0; first < kKeys; first += kRowsAtOnce) {
      copy(first, from + arch::shuffle(place, first + r));
    }
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
    const int column = key / p.page_size;
    token = key - column * p.page_size;
    const int entry = arch::load_global(p.tensors.table + at.b * p.table_stride + column);
    page = smaller(larger(entry, 0), p.pages - 1);
  }

  const decode_arguments& p;
  decode_ring<Config>& ring;
  tile_cursor at;
  int next, end;  // tiles of all columns
  int stage = 0;
  int page, token;  // what look_up found
};

// Adds up what the warps have of an item of which the block has the tiles first … end − 1.
template <class Config>
KITTENS_DEVICE void end_segment(const decode_arguments& p, const tile_ranges& all,
                                decode_shared<Config>& shared, const tile_cursor& at, int first,
                                int end) {
  const int block = arch::block_x(), range = block >> p.abreast;
  const int item = first - at.tile, item_end = item + at.tiles;  // its tiles
  const bool begins = at.tile == 0, ends = end == item_end;
  const item_rows rows = at.rows(p);
  if (!(begins && ends) && arch::thread_id() == 0) {
    const int first_range = begins ? range : all.owner_of(item);
    const int last_range = ends ? range : all.owner_of(item_end - 1);
    shared.split[begins ? 1 : 0] = {rows, block - ((range - first_range) << p.abreast),
                                    last_range - first_range + 1};
  }
  for (int row = arch::warp_id(); row < rows.count; row += kWarps) {
    const decode_row<Config> sum = combine_warps<Config>(shared.parts, row);
    if (begins && ends) {
      store_output<Config>(p, rows, row, sum);
    } else {
      store_part<Config>(p, 2 * block + (begins ? 1 : 0), row, sum);
    }
  }
}

// Adds up the items of which this block is the last to have written a part.
template <class Config>
KITTENS_DEVICE void add_parts(const decode_arguments& p, decode_shared<Config>& shared) {
  arch::sync_block();  // all of the block's parts are written
  if (arch::warp_id() == 0 && arch::lane_id() < kSplitItems) {
    const split_item& item = shared.split[arch::lane_id()];
    bool last = false;
    if (item.parts > 0) {
      int* const counter = p.counters + item.first;
      arch::fence_device();
      last = arch::atomic_add(counter, 1) == item.parts - 1;
      arch::fence_device();
      if (last) arch::atomic_exchange(counter, 0);
    }
    shared.to_add[arch::lane_id()] = last;
  }
  arch::sync_block();
  for (int i = 0; i < kSplitItems; ++i) {
    if (arch::load_shared(&shared.to_add[i]) == 0) continue;
    const split_item item = shared.split[i];
    for (int row = arch::warp_id(); row < item.rows.count; row += kWarps) {
      store_output<Config>(p, item.rows, row, combine_blocks<Config>(p, item, row));
    }
  }
}

// Of sequences without keys.
template <class Config>
KITTENS_DEVICE void clear_outputs(const decode_arguments& p) {
  for (int b = arch::block_x(); b < p.batch; b += p.blocks) {
    if (tiles_of(p, b) != 0) continue;
    for (int i = arch::warp_id(); i < p.key_heads * p.rows(); i += kWarps) {
      const item_rows row{b, i / p.rows(), i % p.rows(), 1};
      store_output<Config>(p, row, 0, {});
    }
  }
}

// The block's tiles first … end − 1, of which there is one.
template <class Config>
KITTENS_DEVICE void decode_range(const decode_arguments& p, const tile_ranges& all,
                                 decode_shared<Config>& shared) {
  constexpr int kGroups = 2 * Config::stages;  // of copies under way
  const int block = arch::block_x(), warp = arch::warp_id(), range = block >> p.abreast;
  const int first = all.first_of(range), end = all.first_of(range + 1);
  tile_cursor at(block & ((1 << p.abreast) - 1));
  at.seek(p, first);
  tile_cursor ahead = at;
  if (first + warp < end) ahead.advance(p, warp);
  decode_ring<Config>& ring = shared.rings[warp];
  decode_loader<Config> loader(p, ring, ahead, first + warp, end);
#pragma unroll 1  // it is run once: the code takes longer to come than the loop to be counted
  for (int i = 0; i < Config::stages; ++i) {
    loader.request_keys();
    loader.request_values();
  }

  decode_item<Config> item(p);
  int mine = first + warp, stage = 0;
  for (int begin = first; begin < end;) {
    const int stop = smaller(end, begin - at.tile + at.tiles);
    item.begin(at);
    for (; mine < stop; mine += kWarps) {
      uint32_t weights[kKeys / kBase][4];
      arch::cp_async_wait<kGroups - 1>();
      arch::sync_warp();  // all lanes' copies have landed
      item.weigh(weights, ring.k[stage], at.first_key() + (mine - begin) * kKeys);
      arch::sync_warp();  // all have read the keys
      loader.request_keys();
      arch::cp_async_wait<kGroups - 1>();
      arch::sync_warp();
      item.add_values(weights, ring.v[stage]);
      arch::sync_warp();
      loader.request_values();
      stage = stage + 1 == Config::stages ? 0 : stage + 1;
    }
    item.add_up();
    arch::sync_block();  // what the warps had of the item before has been read
    item.store(shared.parts[warp], at);
    arch::sync_block();
    end_segment<Config>(p, all, shared, at, begin, stop);
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
  if (sums.some_empty) clear_outputs<Config>(p);
  if (arch::block_x() >> p.abreast >= all.ranges) return;
  if (arch::thread_id() < kSplitItems) shared.split[arch::thread_id()].parts = 0;
  decode_range<Config>(p, all, shared);
  add_parts<Config>(p, shared);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
