// rotary: turns each pair of elements of q and k by the angle of its token's position.
//
//   q [batch, tokens, Hq, width], k [batch, tokens, Hk, width], cos, sin [table_rows, rotated / 2]
//     → q and k, the pairs among the first `rotated` elements of a head turned, the rest copied
//
// Memory-bound: q and k are read once and written once. A thread has one place in the heads of one
// token and keeps its cosines and sines in registers; it moves `heads` heads at once, so that
// several accesses are on their way before the table's row is known.
//
//   unit      two runs of a head that one thread moves: the runs `unit` of both halves of what is
//             rotated, also where pairs are neighbours, which then lie within the runs; past them,
//             two runs to copy
//   block     tokens × slots × units threads; slot s has the heads s, s + slots, … of q and then k
//   grid      the chunks of `tokens` tokens of one batch after another; where there are few of
//             them, several blocks share a token's heads
//
// Positions past the ends of the table take its first and last row; nothing else is ever read.
#pragma once

#include <kittens.cuh>

#include "kernels/rotary/rotary.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::rotary_kernels::inline KITTENS_TARGET {

using namespace kittens;
using host::dtype;

// T: element type. Run: elements a thread moves at once (16 bytes, 4, or 1 element where they are
// not aligned). Interleaved: pairs are neighbours. Heads: how many a thread moves at once.
template <class T, int Run, bool Interleaved, int Heads>
struct rotary_config {
  using type = T;
  static constexpr int run = Run, heads = Heads;
  static constexpr int max_threads =
      Run >= 4 ? (sizeof(T) == 4 ? 192 : 128) : kRotaryMaxWidth / (2 * Run);
  static constexpr int min_blocks = 1024 / max_threads;  // 64 registers a thread
  // Whether the pairs lie within a run. (A run of one element is half of a pair.)
  static constexpr bool pairs_in_run = Interleaved && Run > 1;
  static constexpr bool interleaved = Interleaved;
  static constexpr bool evict_last = Run * sizeof(T) == 16;  // benchmarks/rotary.md
};

// Divides small numbers: divisor · number < 2^20.
struct small_divisor {
  int divisor;
  uint32_t inverse;  // 2^20 / divisor, rounded up

  explicit small_divisor(int divisor)
      : divisor(divisor), inverse(((1u << 20) + divisor - 1) / divisor) {}
  KITTENS_DEVICE int quotient(int number) const { return int(number * inverse >> 20); }
};

// How the host cuts the work.
struct rotary_layout {
  int rotated_units;    // of a head: to turn
  small_divisor units;  // of a head: all
  small_divisor slots;  // of a block
  int tokens;           // of a block
  int chunks;           // blocks of one batch
};

KITTENS_DEVICE int64_t load_index(const void* data, int64_t i, bool is_int64) {
  return is_int64 ? arch::load_global(static_cast<const int64_t*>(data) + i)
                  : arch::load_global(static_cast<const int32_t*>(data) + i);
}

// The row of the table for a token. A packed token belongs to the last sequence that starts at it
// or before it. Whatever cu_seqlens and offsets hold, the row is one of the table's.
KITTENS_DEVICE int64_t table_row(const rotary_params& p, int b, int token) {
  int64_t sequence = b, start = 0;
  if (p.cu_seqlens != nullptr) {
    int64_t low = 0, high = p.sequences + 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const int64_t entry = load_index(p.cu_seqlens, middle, p.int64_seqlens);
      if (entry <= token) {
        low = middle + 1;
        start = entry > 0 ? entry : 0;
      } else {
        high = middle;
      }
    }
    sequence = low - 1;
  }
  const int64_t position = token - start + p.offset, to_last = p.table_rows - 1 - position;
  int64_t shift = 0;
  const int64_t count = p.cu_seqlens != nullptr ? p.sequences : p.batch;
  if (p.offsets != nullptr && sequence >= 0 && sequence < count) {
    shift = load_index(p.offsets, sequence, p.int64_offsets);
  }
  if (shift > to_last) shift = to_last;
  return shift < -position ? 0 : position + shift;
}

// The cosines and sines of one thread's pairs.
template <class Config>
struct rotation {
  static constexpr int run = Config::run;
  static constexpr int pieces = Config::pairs_in_run ? 2 : 1;  // one for each run of the unit
  static constexpr int length = run / pieces;
  float cos[run], sin[run];

  KITTENS_DEVICE void load_from(const rotary_params& p, int64_t row, int unit) {
    if (p.table_type == dtype::float32) {
      load_as<float>(p, row, unit);
    } else {
      load_as<typename Config::type>(p, row, unit);
    }
  }

  // a and b are the unit's two runs.
  KITTENS_DEVICE void turn(float (&a)[run], float (&b)[run]) const {
    if constexpr (Config::pairs_in_run) {
#pragma unroll
      for (int i = 0; i < length; ++i) {
        turn_pair(a[2 * i], a[2 * i + 1], i);
        turn_pair(b[2 * i], b[2 * i + 1], length + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < run; ++i) turn_pair(a[i], b[i], i);
    }
  }

 private:
  template <class Table>
  KITTENS_DEVICE void load_as(const rotary_params& p, int64_t row, int unit) {
    const Table* cos_row = static_cast<const Table*>(p.cos) + row * p.cos_stride;
    const Table* sin_row = static_cast<const Table*>(p.sin) + row * p.sin_stride;
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) {
      const int column = piece * (p.rotated / 4) + unit * length;
      load_piece(&cos[piece * length], cos_row + column, false);
      load_piece(&sin[piece * length], sin_row + column, p.conjugate);
    }
  }

  template <class Table>
  KITTENS_DEVICE static void load_piece(float* dst, const Table* src, bool negative) {
    lane_run<Table, length> loaded;
    detail::run_access<Table, length>::template load<Config::evict_last>(loaded, src, true);
    float values[length];
    loaded.get(values);
#pragma unroll
    for (int i = 0; i < length; ++i) dst[i] = negative ? -values[i] : values[i];
  }

  KITTENS_DEVICE void turn_pair(float& x1, float& x2, int i) const {
    const float turned = fmaf(x1, cos[i], -(x2 * sin[i]));
    x2 = fmaf(x1, sin[i], x2 * cos[i]);
    x1 = turned;
  }
};

// Where a unit's two runs start in a head; the second of the last unit to copy may not be there.
struct unit_runs {
  int first, second;
  bool has_second;
};

template <class Config>
KITTENS_DEVICE unit_runs runs_of(const rotary_params& p, const rotary_layout& layout, int unit) {
  constexpr int kRun = Config::run;
  if (unit >= layout.rotated_units) {
    const int copied = unit - layout.rotated_units;
    const int first = p.rotated + copied * kRun;
    const int second = first + (layout.units.divisor - layout.rotated_units) * kRun;
    return {first, second, second < p.width};
  }
  if (Config::interleaved && kRun == 1) return {2 * unit, 2 * unit + 1, true};
  return {unit * kRun, p.rotated / 2 + unit * kRun, true};
}

// One token of q and k.
template <class T>
struct token_heads {
  const T *q_in, *k_in;
  T *q_out, *k_out;

  KITTENS_DEVICE token_heads(const rotary_params& p, int b, int token)
      : q_in(static_cast<const T*>(p.q.in) + distance(p.q.in_strides, b, token)),
        k_in(static_cast<const T*>(p.k.in) + distance(p.k.in_strides, b, token)),
        q_out(static_cast<T*>(p.q.out) + distance(p.q.out_strides, b, token)),
        k_out(static_cast<T*>(p.k.out) + distance(p.k.out_strides, b, token)) {}

  // Heads count through q's and then k's. (Selected part by part, it takes no branch.)
  KITTENS_DEVICE const T* in(const rotary_params& p, int head) const {
    const bool of_k = head >= p.q.heads;
    return (of_k ? k_in : q_in) +
           (of_k ? head - p.q.heads : head) * (of_k ? p.k.in_strides.head : p.q.in_strides.head);
  }
  KITTENS_DEVICE T* out(const rotary_params& p, int head) const {
    const bool of_k = head >= p.q.heads;
    return (of_k ? k_out : q_out) +
           (of_k ? head - p.q.heads : head) * (of_k ? p.k.out_strides.head : p.q.out_strides.head);
  }

 private:
  KITTENS_DEVICE static int64_t distance(const rotary_strides& strides, int b, int token) {
    return b * strides.batch + token * strides.token;
  }
};

// The runs of a unit in several heads: what a thread has on its way.
template <class Config>
struct unit_in_heads {
  using T = typename Config::type;
  using access = detail::run_access<T, Config::run>;
  lane_run<T, Config::run> a[Config::heads], b[Config::heads];

  KITTENS_DEVICE void load_from(const token_heads<T>& token, const rotary_params& p,
                                const unit_runs& runs, int head, int slots) {
    const int heads = p.q.heads + p.k.heads;
#pragma unroll
    for (int i = 0; i < Config::heads; ++i) {
      const bool inside = head + i * slots < heads;
      const T* row = token.in(p, inside ? head + i * slots : head);
      access::template load<Config::evict_last>(a[i], row + runs.first, inside);
      access::template load<Config::evict_last>(b[i], row + runs.second, inside && runs.has_second);
    }
  }

  KITTENS_DEVICE void turn(const rotation<Config>& by) {
#pragma unroll
    for (int i = 0; i < Config::heads; ++i) {
      float x1[Config::run], x2[Config::run];
      a[i].get(x1);
      b[i].get(x2);
      by.turn(x1, x2);
      a[i].set(x1);
      b[i].set(x2);
    }
  }

  KITTENS_DEVICE void store_to(const token_heads<T>& token, const rotary_params& p,
                               const unit_runs& runs, int head, int slots) const {
    const int heads = p.q.heads + p.k.heads;
#pragma unroll
    for (int i = 0; i < Config::heads && head + i * slots < heads; ++i) {
      T* row = token.out(p, head + i * slots);
      access::store(row + runs.first, a[i]);
      if (runs.has_second) access::store(row + runs.second, b[i]);
    }
  }
};

// Grid: (batch · chunks, any number) blocks.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads,
                                  arch::min_blocks<Config::max_threads, Config::min_blocks>)
    rotary(const __grid_constant__ rotary_params p, rotary_layout layout) {
  begin_dependent_grid();
  const int place = layout.units.quotient(arch::thread_id());
  const int unit = arch::thread_id() - place * layout.units.divisor;
  const int of_block = layout.slots.quotient(place);
  const int slot = place - of_block * layout.slots.divisor;
  const int b = unsigned(arch::block_x()) / unsigned(layout.chunks);
  const int token = (arch::block_x() - b * layout.chunks) * layout.tokens + of_block;
  const int slots = layout.slots.divisor * arch::grid_y(), all_heads = p.q.heads + p.k.heads;
  int head = slot + layout.slots.divisor * arch::block_y();
  if (of_block >= layout.tokens || token >= p.tokens || head >= all_heads) return;

  const token_heads<typename Config::type> heads(p, b, token);
  const unit_runs runs = runs_of<Config>(p, layout, unit);
  const bool turns = unit < layout.rotated_units;
  unit_in_heads<Config> x;
  x.load_from(heads, p, runs, head, slots);

  rotation<Config> by;
  if (turns) by.load_from(p, table_row(p, b, token), unit);
  while (true) {
    if (turns) x.turn(by);
    x.store_to(heads, p, runs, head, slots);
    head += Config::heads * slots;
    if (head >= all_heads) return;
    x.load_from(heads, p, runs, head, slots);
  }
}

}  // namespace thunderkittens::rotary_kernels::inline KITTENS_TARGET
