// attention, forward: where a block's tiles come from. (attention_forward.cuh)
#pragma once

#include "kernels/attention/attention_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// The tiles of a call without packed sequences.
template <class Config>
class dense_walk {
 public:
  KITTENS_DEVICE explicit dense_walk(const attention_arguments& p) : p(p), walk(p.tiles) {}

  KITTENS_DEVICE bool valid() const { return walk.valid(); }
  KITTENS_DEVICE void next() { walk.next(); }
  KITTENS_DEVICE attention_tile tile() const {
    const auto [m, head, batch] = walk.place();
    const auto [first, end] = p.key_ranges.of(batch, p.keys);
    return {m, head, batch, 0, first, p.rows, end - first};
  }

 private:
  const attention_arguments& p;
  tile_walk walk;
};

// The tiles of all sequences, one after the other. Of a sequence, where the scheduler wants the
// last rows first, those of all heads; else one head after the other, whose tiles then read the
// same keys at the same time (D 128, no mask: 2 % faster). The rows before the first sequence and
// those behind the last one are a sequence each, without keys.
template <class Config>
class packed_walk {
 public:
  KITTENS_DEVICE explicit packed_walk(const attention_arguments& p)
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
  const attention_arguments& p;
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

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
