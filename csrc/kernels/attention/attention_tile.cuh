// attention, forward: a tile, what is known of its call, and the blocks of keys that its rows see;
// and what producer and consumers of the kernel for Hopper share: its configuration, shared memory
// and tensors. (attention_forward.cuh)
#pragma once

#include "kernels/attention/attention_configs.cuh"
#include "kernels/attention/attention_softcap.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

template <class T, int HeadDim, bool Capped, bool Sums, int ValueDim = HeadDim>
struct attention_forward_config {
  using type = T;
  static constexpr attention_form form = forward_form(HeadDim, ValueDim, Capped);
  static constexpr int head_dim = HeadDim, value_dim = ValueDim;
  static constexpr bool capped = Capped;
  static constexpr bool sums = Sums;  // whether l, and so lse, is needed
  static constexpr int consumers = form.consumers;
  static constexpr int rows = 64 * consumers;  // of a tile
  static constexpr int keys = form.keys;
  static constexpr int half_keys = keys / 2;  // enough of a block for some rows at a mask's edges
  static constexpr int stages = consumers;    // each may be at a block of its own
  static constexpr int q_stages = form.q_stages;
  static constexpr int warpgroups = consumers + 1;
  static constexpr int threads = 128 * warpgroups;
  static constexpr int producer_registers = form.producer_registers;
  static constexpr int consumer_registers = form.consumer_registers;
  static constexpr bool fixed_reference = form.reference == softmax_reference::fixed;
  static constexpr bool ones_beside_v = fixed_reference;
  static_assert(
      sums || (fixed_reference && std::same_as<T, bf16>),
      "o is divided by l, where v has no column of ones; fp16's overflow shows in l alone");

  // Of 80 and 96 columns, too, rows of 128 bytes: TMA takes as long for 32 or 64 bytes of a row.
  using layout = ducks::st_layout::swizzle_128;
  using q_tile = st<T, 64, HeadDim, layout>;  // of one consumer
  using o_tile = st<T, 64, ValueDim, layout>;
  using k_tile = st<T, keys, HeadDim, layout>;
  using value_tile = st<T, keys, ValueDim, layout>;
  using v_tile =
      std::conditional_t<fixed_reference, st_ones<T, keys, ValueDim, layout>, value_tile>;
  static_assert(sizeof(o_tile) <= sizeof(q_tile), "o takes the place of q");
  using o_accumulator = rt_fl<16, ValueDim + (fixed_reference ? 16 : 0)>;

  KITTENS_DEVICE static value_tile& values(v_tile& v) {
    if constexpr (fixed_reference) {
      return v.tile;
    } else {
      return v;
    }
  }
};

// A tile: number m of the row tiles of a head, and where its sequence lies.
struct attention_tile {
  int m, head, batch;    // batch 0 where sequences are packed
  int q_start, k_start;  // the sequence's first row, where they are packed; and its first key
  int rows, keys;        // Sq, Sk
};

// What the producer tells the consumers.
struct alignas(16) attention_item {
  attention_tile tile;
  // 0: a new tile. n > 0: the tile n items before this one again, for the rows that overflowed.
  int again;
  static constexpr int kEnd = -1;  // of m: there is no more
};

template <class Config>
struct attention_forward_shared {
  typename Config::q_tile q[Config::q_stages][Config::consumers];  // and then o
  typename Config::k_tile k[Config::stages];
  typename Config::v_tile v[Config::stages];
  attention_item items[2];                        // of even and of odd numbers
  uint32_t overflowed[2][4 * Config::consumers];  // flags: whether a row of the warp has, likewise
  ring<Config::q_stages> q_ring;
  ring<Config::stages> k_ring, v_ring;
  semaphore overflow_checked[2];  // likewise
};

// cu_seqlens: where packed sequences start, and the last one ends.
struct sequence_ends {
  const void* numbers;
  bool is_int64;  // else int32

  // Number i, but within `least` and `most`.
  KITTENS_DEVICE int at(int i, int least, int most) const {
    const int64_t n = is_int64 ? arch::load_global(static_cast<const int64_t*>(numbers) + i)
                               : arch::load_global(static_cast<const int*>(numbers) + i);
    return n < least ? least : n > most ? most : static_cast<int>(n);
  }
};

// Which keys of a batch exist, where calls have bounds of their own: [B] each, or no numbers.
struct attention_key_ranges {
  sequence_ends seqused, leftpad;

  // From the first one to behind the last one, of `keys`. Numbers out of order are moved.
  struct range {
    int first, end;
  };
  KITTENS_DEVICE range of(int batch, int keys) const {
    const int end = seqused.numbers == nullptr ? keys : seqused.at(batch, 0, keys);
    const int first = leftpad.numbers == nullptr ? 0 : leftpad.at(batch, 0, end);
    return {first, end};
  }
};

inline constexpr int kNotPacked = -1;

// What a kernel is told of a call, beside where q, k, v and o are.
struct attention_arguments {
  gl<float> lse;       // [B, Hq, 1, Sq]; data is null when it is not wanted
  const float* sinks;  // [Hq], or null
  tile_scheduler tiles;
  int rows, keys;  // Sq, Sk; of packed sequences, all together
  sequence_ends q_ends, k_ends;
  int sequences;      // or kNotPacked
  int left, right;    // how far a row sees from its diagonal; at most Sk, and Sq
  int heads_per_key;  // Hq / Hk
  attention_softcap softcap;
  float scale;       // what takes s, or tanh of the capped s, to logits
  float scale_log2;  // … in units of log₂
  // Of batches that are not packed.
  attention_key_ranges key_ranges;
};

template <class Config>
struct attention_forward_arguments : attention_arguments {
  tma_sequence_map<typename Config::q_tile> q;
  tma_sequence_map<typename Config::o_tile> o;
  tma_columns_map<typename Config::k_tile> k;
  tma_columns_map<typename Config::value_tile> v;
  gl<typename Config::type> o_rows;  // [B, Hq, Sq, Dv], the same as o
  // Whether TMA finds keys and values as the rows of one sequence, which they are if they are
  // packed or have bounds; and then, how many there are from a batch's first one to the next one's.
  bool flat_keys;
  int k_step, v_step;

  // Where TMA finds the sequence of a tile.
  KITTENS_DEVICE sequence_origin q_origin(const attention_tile& tile) const {
    return sequences == kNotPacked ? sequence_origin::of(tile.batch)
                                   : sequence_origin::packed(tile.q_start, tile.rows);
  }
  KITTENS_DEVICE sequence_origin k_origin(const attention_tile& tile, int step) const {
    return flat_keys ? sequence_origin::packed(tile.batch * step + tile.k_start, tile.keys)
                     : sequence_origin::of(tile.batch);
  }
};

// The blocks of keys that some rows see: [first, end), of which [first_fixed, end_fixed) may be
// done with a fixed reference, after those behind them have been done.
struct key_blocks {
  int first, end, first_fixed, end_fixed;
  bool low_half, high_half;  // no row sees the last block's second half, the first one's first half

  // For `count` rows of the tile's sequence, from `row` on. P: what has left and right, as
  // attention_arguments.
  template <class Config, class P>
  KITTENS_DEVICE static key_blocks of(const P& p, const attention_tile& tile, int row, int count) {
    constexpr int N = Config::keys;
    const int last = least(row + count, tile.rows) - 1;
    const int diagonal = row + tile.keys - tile.rows;  // of the first row
    const int steps = last - row;
    // Where the keys of the first and of the last row start and end.
    const int first_start = diagonal > p.left ? diagonal - p.left : 0;
    const int last_start = diagonal + steps > p.left ? diagonal + steps - p.left : 0;
    const int first_end = least(tile.keys, diagonal + p.right + 1);
    const int last_end = least(tile.keys, diagonal + steps + p.right + 1);
    if (steps < 0 || last_end <= first_start) return {};
    const int first = first_start / N, end = (last_end + N - 1) / N;
    const bool low_half = last_end - (end - 1) * N <= Config::half_keys;
    const bool high_half = first_start - first * N >= Config::half_keys;
    const int whole_end = first_end / N;
    const int whole_first = (last_start + N - 1) / N;
    if (!Config::fixed_reference || whole_end <= whole_first) {
      return {first, end, first, first, low_half, high_half};
    }
    // Either the first row, and so each one, has seen keys in the blocks behind, or one more block
    // is done with the online maximum.
    const int end_fixed = first_end > whole_end * N ? whole_end : whole_end - 1;
    return {first, end, whole_first, end_fixed, low_half, high_half};
  }

 private:
  KITTENS_DEVICE static int least(int x, int y) { return x < y ? x : y; }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
