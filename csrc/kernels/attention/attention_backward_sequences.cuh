// attention, backward: where the sequences lie, and the blocks of their rows and keys.
// (attention_backward.cuh)
#pragma once

#include "kernels/attention/attention_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// The rows and keys of a sequence. Without the first rows where they see no key, as those of a
// causal sequence with fewer keys than rows: so nothing of theirs reaches a product.
struct attention_sequence {
  int q_start, k_start;  // the first row that sees a key; the first key
  int rows, keys;        // rows from there on; Sk
  int blind_rows;        // right before q_start
};

// All sequences. Without packing they are alike, one of each batch. The rows and keys before the
// first packed one, and those behind the last one, count as a sequence each whose rows are blind.
//
// Blocks of N rows, or of N keys, are numbered through: those of packed sequence i from
// ⌊start / N⌋ + i on, which leaves some numbers to no block. None belongs to two, as
// ⌊start / N⌋ + ⌈length / N⌉ ≤ ⌊(start + length) / N⌋ + 1.
struct attention_sequences {
  int rows, keys;                  // Sq, Sk; of packed sequences, all together
  int right;                       // row i sees keys up to i + Sk − Sq + right
  const int *q_starts, *k_starts;  // [count + 1], from 0 to rows and keys; null: not packed
  int count;                       // two more than were packed; or 1
  // Of batches that are not packed.
  attention_key_ranges key_ranges;

  KITTENS_DEVICE bool packed() const { return q_starts != nullptr; }

  KITTENS_DEVICE attention_sequence at(int i, int batch) const {
    if (!packed()) {
      const auto [first, end] = key_ranges.of(batch, keys);
      return see(0, first, rows, end - first);
    }
    const int q = arch::load_global(q_starts + i), k = arch::load_global(k_starts + i);
    const int q_rows = arch::load_global(q_starts + i + 1) - q;
    const int k_rows = arch::load_global(k_starts + i + 1) - k;
    if (i == 0 || i == count - 1) return {q + q_rows, k, 0, k_rows, q_rows};
    return see(q, k, q_rows, k_rows);
  }

  // The number of sequence i's first block of N rows, of N keys.
  template <int N>
  KITTENS_DEVICE int first_row_block(int i) const {
    return packed() ? first_block<N>(q_starts, i) : 0;
  }
  template <int N>
  KITTENS_DEVICE int first_key_block(int i) const {
    return packed() ? first_block<N>(k_starts, i) : 0;
  }
  // The sequence whose block of rows, of keys, has this number: or behind whose last one it is.
  template <int N>
  KITTENS_DEVICE int of_row_block(int number) const {
    return packed() ? find<N>(q_starts, number) : 0;
  }
  template <int N>
  KITTENS_DEVICE int of_key_block(int number) const {
    return packed() ? find<N>(k_starts, number) : 0;
  }

 private:
  KITTENS_DEVICE attention_sequence see(int q, int k, int q_rows, int k_rows) const {
    const int64_t unseeing = k_rows == 0 ? q_rows : int64_t{q_rows} - k_rows - right;
    const int blind = static_cast<int>(unseeing < 0 ? 0 : unseeing > q_rows ? q_rows : unseeing);
    return {q + blind, k, q_rows - blind, k_rows, blind};
  }
  template <int N>
  KITTENS_DEVICE static int first_block(const int* starts, int i) {
    return arch::load_global(starts + i) / N + i;
  }
  template <int N>
  KITTENS_DEVICE int find(const int* starts, int number) const {
    int first = 0, last = count - 1;
    while (first < last) {
      const int middle = (first + last + 1) / 2;
      if (first_block<N>(starts, middle) <= number) {
        first = middle;
      } else {
        last = middle - 1;
      }
    }
    return first;
  }
};

struct attention_starts_arguments {
  sequence_ends q, k;
  int rows, keys;
  int count;                 // of cu_seqlens: sequences + 1
  int *q_starts, *k_starts;  // [count + 2]
};

inline constexpr int kStartsThreads = 64;

// One block, a warp for each of q and k: 0, cu_seqlens, and the length, each at least what came
// before it, and at most the length.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    attention_backward_starts(const __grid_constant__ attention_starts_arguments p) {
  begin_dependent_grid();
  const bool of_q = arch::warp_id() == 0;
  const sequence_ends& from = of_q ? p.q : p.k;
  int* const to = of_q ? p.q_starts : p.k_starts;
  const int length = of_q ? p.rows : p.keys, lane = arch::lane_id();
  constexpr int kEach = 8;  // consecutive numbers of a lane, whose loads overlap
  int reached = 0;
  if (lane == 0) arch::store_global(to, 0);
  for (int first = 0; first < p.count; first += 32 * kEach) {
    int numbers[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = first + lane * kEach + i;
      numbers[i] = at < p.count ? from.at(at, 0, length) : 0;
    }
#pragma unroll
    for (int i = 1; i < kEach; ++i)
      numbers[i] = numbers[i] > numbers[i - 1] ? numbers[i] : numbers[i - 1];
    int before = numbers[kEach - 1];  // the largest of this lane's and those before it
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = arch::shuffle_up(before, step);
      if (lane >= step && other > before) before = other;
    }
    const int all = arch::shuffle(before, 31);
    before = arch::shuffle_up(before, 1);
    if (lane == 0 || before < reached) before = reached;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = first + lane * kEach + i;
      if (at < p.count) arch::store_global(to + 1 + at, numbers[i] > before ? numbers[i] : before);
    }
    reached = all > reached ? all : reached;
  }
  if (lane == 0) arch::store_global(to + 1 + p.count, length);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
