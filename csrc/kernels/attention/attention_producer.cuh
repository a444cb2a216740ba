// attention, forward: the producer. It chooses the tiles, and brings what they read.
// (attention_forward.cuh)
#pragma once

#include "kernels/attention/attention_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// The tiles of a call without packed sequences.
template <class Config>
class dense_walk {
 public:
  KITTENS_DEVICE explicit dense_walk(const attention_forward_arguments<Config>& p)
      : p(p), walk(p.tiles) {}

  KITTENS_DEVICE bool valid() const { return walk.valid(); }
  KITTENS_DEVICE void next() { walk.next(); }
  KITTENS_DEVICE attention_tile tile() const {
    const auto [m, head, batch] = walk.place();
    const auto [first, end] = p.key_ranges.of(batch, p.keys);
    return {m, head, batch, 0, first, p.rows, end - first};
  }

 private:
  const attention_forward_arguments<Config>& p;
  tile_walk walk;
};

// The tiles of all sequences, one after the other. Of a sequence, where the scheduler wants the
// last rows first, those of all heads; else one head after the other, whose tiles then read the
// same keys at the same time (D 128, no mask: 2 % faster). The rows before the first sequence and
// those behind the last one are a sequence each, without keys.
template <class Config>
class packed_walk {
 public:
  KITTENS_DEVICE explicit packed_walk(const attention_forward_arguments<Config>& p)
      : p(p), tile_number(static_cast<unsigned>(arch::block_x())) {
    enter();
    seek();
  }

  KITTENS_DEVICE bool valid() const { return sequence < p.sequences + 2; }
  KITTENS_DEVICE void next() {
    const int n = arch::atomic_add(p.tiles.counter, 1);
    tile_number = static_cast<unsigned>(arch::grid_x()) + static_cast<unsigned>(n);
    seek();
    // Each block takes one number in vain, and has counted all tiles then: this was the last one.
    if (!valid() && static_cast<unsigned>(n) == first - 1) {
      arch::atomic_exchange(p.tiles.counter, 0);
    }
  }
  KITTENS_DEVICE attention_tile tile() const {
    const int inside = static_cast<int>(tile_number - first);
    // The inner index, of `inner` tiles, runs faster.
    const int inner = p.tiles.last_first ? p.tiles.heads : row_tiles();
    const int outer_at = inside / inner, inner_at = inside - outer_at * inner;
    const int m = p.tiles.last_first ? row_tiles() - 1 - outer_at : inner_at;
    return {m,
            p.tiles.last_first ? inner_at : outer_at,
            0,
            q_start,
            k_start,
            rows,
            sequence > 0 ? keys : 0};
  }

 private:
  const attention_forward_arguments<Config>& p;
  unsigned tile_number, first = 0;  // this tile's number, and that of the sequence's first
  int sequence = 0;                 // 0: the rows before the first one
  int q_start = 0, k_start = 0, rows, keys;

  KITTENS_DEVICE int row_tiles() const { return (rows + Config::rows - 1) / Config::rows; }

  // The sequence that starts where the last one ends.
  KITTENS_DEVICE void enter() {
    const bool inside = sequence <= p.sequences;
    rows = (inside ? p.q_ends.at(sequence, q_start, p.rows) : p.rows) - q_start;
    keys = inside ? p.k_ends.at(sequence, k_start, p.keys) - k_start : 0;
  }
  // On to the sequence of the tile of this number, if there is one.
  KITTENS_DEVICE void seek() {
    while (valid()) {
      const unsigned end = first + static_cast<unsigned>(row_tiles() * p.tiles.heads);
      if (tile_number < end) return;
      first = end;
      q_start += rows;
      k_start += keys;
      ++sequence;
      enter();
    }
  }
};

// Walk: where the tiles come from.
template <class Config, class Walk>
class attention_producer {
 public:
  KITTENS_DEVICE attention_producer(const attention_forward_arguments<Config>& p,
                                    attention_forward_shared<Config>& shared, Walk walk)
      : p(p), shared(shared), walk(walk) {}

  KITTENS_DEVICE void produce() {
    for (;; ++number) {
      const attention_item item = choose();
      shared.q_ring.wait_empty(q_at);
      shared.items[number % 2] = item;
      if (item.tile.m == attention_item::kEnd) {
        arrive(shared.q_ring.full[q_at.stage]);
        return;
      }
      load(item);
    }
  }

 private:
  const attention_forward_arguments<Config>& p;
  attention_forward_shared<Config>& shared;
  Walk walk;
  int number = 0;   // of the item
  int checked = 0;  // items whose overflow flags have been looked at
  cursor<Config::q_stages> q_at;
  cursor<Config::stages> at;

  // The consumers are at work on the item before this one, so those before that one are checked;
  // the last one is waited for when there is nothing else to do.
  KITTENS_DEVICE attention_item choose() {
    if constexpr (Config::fixed_reference) {
      for (; checked < number - (walk.valid() ? 1 : 0); ++checked) {
        if (overflowed(checked)) {
          attention_item again = shared.items[checked % 2];
          again.again = number - checked++;
          return again;
        }
      }
    }
    if (!walk.valid()) return {{attention_item::kEnd, 0, 0, 0, 0, 0, 0}, 0};
    return {walk.tile(), 0};
  }

  KITTENS_DEVICE bool overflowed(int item) {
    wait(shared.overflow_checked[item % 2], item / 2 & 1);
    uint32_t any = 0;
    for (const uint32_t warp : shared.overflowed[item % 2]) any |= warp;
    return any != 0;
  }

  // Goes on to the next tile when the first loads are under way: to find it takes a while.
  KITTENS_DEVICE void load(const attention_item& item) {
    const attention_tile& tile = item.tile;
    bool goes_on = item.again == 0;
    constexpr int kBytes = tma::bytes<typename Config::k_tile>;
    const key_blocks blocks = key_blocks::of(p, tile, tile.m * Config::rows, Config::rows);
    shared.q_ring.expect(q_at, Config::consumers * tma::bytes<typename Config::q_tile>);
    const sequence_origin queries = p.q_origin(tile), keys = p.k_origin(tile, p.k_step),
                          values_at = p.k_origin(tile, p.v_step);
    for (int w = 0; w < Config::consumers; ++w) {
      tma::load_async(shared.q[q_at.stage][w], p.q, shared.q_ring.full[q_at.stage], queries,
                      tile.m * Config::rows + w * 64, tile.head);
    }
    q_at.advance();
    const int key_head = tile.head / p.heads_per_key;
    for (int j = blocks.end - 1; j >= blocks.first; --j, at.advance()) {
      const int row = j * Config::keys;
      shared.k_ring.wait_empty(at);
      shared.k_ring.expect(at, kBytes);
      tma::load_async(shared.k[at.stage], p.k, shared.k_ring.full[at.stage], keys, row, key_head);
      shared.v_ring.wait_empty(at);
      shared.v_ring.expect(at, kBytes);
      tma::load_async(values(shared.v[at.stage]), p.v, shared.v_ring.full[at.stage], values_at, row,
                      key_head);
      if (goes_on) walk.next();
      goes_on = false;
    }
    if (goes_on) walk.next();
  }

  KITTENS_DEVICE static auto& values(typename Config::v_tile& v) {
    if constexpr (Config::fixed_reference) {
      return v.tile;
    } else {
      return v;
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
