// attention, backward: the rows of q before the products, and dq after them.
// (attention_backward.cuh)
//
// dq is added up in integers: a row's partial sums times a power of two, its factor. What the sign
// of a factor says, and NaN, is how numbers that are not finite, and integers cannot be, find their
// way into dq:
//
//   positive   every partial sum of the row is finite
//   negative   some may not be: who adds one up looks, and if it is not, stores NaN as the factor
//   NaN        the row's dq is NaN: its gradient or delta is not finite, or a product overflows
#pragma once

#include "kernels/attention/attention_backward_bounds.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

inline constexpr int kSinkThreads = 512;

// The power of two that takes a row's dq to integers: no sum of partial dq overflows, if |dq| is at
// most this. There is a factor 2 for roundings.
KITTENS_DEVICE float dq_factor(float bound) {
  constexpr int kBias = 127, kMostFactor = 126;  // whose inverse is a normal number
  uint32_t bits;
  std::memcpy(&bits, &bound, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 23) - kBias;  // bound < 2^(exponent + 1)
  const int most = 29 - exponent;                             // at least −98
  const int factor = most < kMostFactor ? most : kMostFactor;
  const uint32_t result_bits = static_cast<uint32_t>(factor + kBias) << 23;
  float result;
  std::memcpy(&result, &result_bits, sizeof(result));
  return result;
}

// At least Σ p of a row: 1 without a sink.
template <class T>
KITTENS_DEVICE float sum_of_weights(const attention_rows_arguments<T>& p, int head, float lse) {
  if (p.sinks == nullptr) return 1.0f;
  constexpr float kRounding = 0x1p-16f;  // of an lse of 1, and more
  const float share = arch::exp2_approx((arch::load_global(p.sinks + head) - lse) * kLog2e);
  const float others = fmaxf(0.0f, 1.0f - share);
  return fminf(1.0f, fmaf(fabsf(lse), kRounding, kRounding + others));
}

// A row's factor, with what its sign says, or NaN. `most_ds`: Σ |ds| is at most that,
// Σ p (|do| |v| + |delta|).
template <class T>
KITTENS_DEVICE float dq_factor(float most_ds, float lse, const attention_key_bounds& bounds) {
  constexpr float kMostHalf = 65504.0f;
  const float bound = most_ds * bounds.k;
  if (!is_finite(bound) || !is_finite(most_ds)) return NAN;
  const bool is_checked =
      bounds.not_finite != 0 || !(lse < INFINITY) || (std::same_as<T, half> && most_ds > kMostHalf);
  return is_checked ? -dq_factor(bound) : dq_factor(bound);
}

// Number m of the blocks of queries of a sequence and head.
template <class Config>
struct attention_row_place {
  int m, head, batch, of_sequence;
  int64_t number;  // of the block, of all
  attention_sequence sequence;

  template <class T>
  KITTENS_DEVICE explicit attention_row_place(const attention_rows_arguments<T>& p)
      : number(arch::block_x()) {
    const int block = arch::block_x() % p.row_blocks_of_head;
    const int of_all = arch::block_x() / p.row_blocks_of_head;
    head = of_all % p.heads;
    batch = of_all / p.heads;
    of_sequence = p.sequences.template of_row_block<Config::rows>(block);
    m = block - p.sequences.template first_row_block<Config::rows>(of_sequence);
    sequence = p.sequences.at(of_sequence, batch);
  }
  KITTENS_DEVICE bool has_rows() const { return m * Config::rows < sequence.rows; }
  // Row i of the block; kNone if it does not exist.
  static constexpr int kNone = -1;
  KITTENS_DEVICE int row(int i) const {
    const int inside = m * Config::rows + i;
    return inside < sequence.rows ? sequence.q_start + inside : kNone;
  }
};

// Some rows of a block, of each of which this thread has eight elements of o and do.
template <class Config>
struct attention_rows_in_flight {
  using T = typename Config::type;
  using arguments = attention_rows_arguments<T>;
  using place_of_block = attention_row_place<Config>;
  static constexpr int kLanes = Config::row_lanes, kRowsAtOnce = kRowThreads / kLanes;

  uint4 o_words[kRowsInFlight], do_words[kRowsInFlight];
  float lse[kRowsInFlight], dlse[kRowsInFlight];

  KITTENS_DEVICE void load(const arguments& p, const place_of_block& place, int first) {
    const int column = arch::thread_id() % kLanes * 8;
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int row = place.row(first + i * kRowsAtOnce);
      const bool exists = row != place.kNone;
      o_words[i] =
          load_eight(exists ? p.o.row(place.batch, row, place.head) : nullptr, column, p.value_dim);
      do_words[i] = load_eight(exists ? p.d_o.row(place.batch, row, place.head) : nullptr, column,
                               p.value_dim);
      const int64_t at = p.row_of_all(place.batch, place.head, row);
      lse[i] = exists ? arch::load_global(p.lse + at) : -INFINITY;
      dlse[i] = exists && p.dlse != nullptr ? arch::load_global(p.dlse + at) : 0.0f;
    }
  }
  KITTENS_DEVICE void finish(const arguments& p, const place_of_block& place, int first,
                             const attention_key_bounds& bounds) const {
    auto& record = static_cast<attention_row_block<Config::rows>*>(p.row_blocks)[place.number];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      float o[8], d_o[8];
      to_floats<T>(o, o_words[i]);
      to_floats<T>(d_o, do_words[i]);
      float delta = 0.0f;
#pragma unroll
      for (int c = 0; c < 8; ++c) delta = fmaf(o[c], d_o[c], delta);
      delta = sum_of_row_lanes<kLanes>(delta) - dlse[i];
      const float norm = row_norm<kLanes>(d_o, p.value_dim);
      if (arch::thread_id() % kLanes != 0) continue;
      const int in_block = first + i * kRowsAtOnce;
      auto& pair = record.pairs[in_block / 2];
      const bool sees_none = lse[i] == -INFINITY;
      const float most_ds =
          sum_of_weights(p, place.head, lse[i]) * fmaf(norm, bounds.v, fabsf(delta));
      arch::store_global(&pair.lse[in_block % 2], sees_none ? INFINITY : lse[i] * kLog2e);
      arch::store_global(&pair.delta[in_block % 2], sees_none ? 0.0f : delta);
      arch::store_global(p.dq_factors + place.number * Config::rows + in_block,
                         sees_none ? 1.0f : dq_factor<T>(most_ds, lse[i], bounds));
    }
  }
};

// Grid: row blocks, of all heads and batches. Delta and factors of a block's rows; zeroes its dq.
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_prepare(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  constexpr int kRows = Config::rows;
  constexpr int kLanes = Config::row_lanes, kRowsAtOnce = kRowThreads / kLanes;
  const attention_row_place<Config> place(p);
  const int thread = arch::thread_id();
  attention_rows_in_flight<Config> rows;
  int first = thread / kLanes;
  rows.load(p, place, first);
  auto* const numbers = reinterpret_cast<int4*>(p.parts + place.number * Config::parts);
  constexpr int kVectors = Config::parts * sizeof(attention_dq_part) / sizeof(int4);
  if (place.has_rows()) {
    for (int i = thread; i < kVectors; i += kRowThreads) {
      arch::store_global(numbers + i, int4{0, 0, 0, 0});
    }
  }
  const attention_key_bounds bounds = bounds_of_sequence(
      p, place.batch, place.head / (p.heads / p.key_heads), place.of_sequence, place.sequence);
#pragma unroll 1
  for (;;) {
    rows.finish(p, place, first, bounds);
    first += kRowsInFlight * kRowsAtOnce;
    if (first >= kRows) return;
    rows.load(p, place, first);
  }
}

// This thread's part of Σ exp(sink − lse) · delta of the rows that see no key: delta is −dlse, as o
// is 0.
template <class T>
KITTENS_DEVICE float sink_of_blind_rows(const attention_rows_arguments<T>& p, int head,
                                        float sink) {
  float total = 0.0f;
  if (p.dlse == nullptr) return total;
  for (int batch = 0; batch < p.batch; ++batch) {
    for (int i = 0; i < p.sequences.count; ++i) {
      const attention_sequence sequence = p.sequences.at(i, batch);
      for (int row = arch::thread_id(); row < sequence.blind_rows; row += kSinkThreads) {
        const int64_t at = p.row_of_all(batch, head, sequence.q_start - 1 - row);
        const float lse = arch::load_global(p.lse + at) * kLog2e;
        if (lse != -INFINITY) {
          total = fmaf(arch::exp2_approx(sink - lse), -arch::load_global(p.dlse + at), total);
        }
      }
    }
  }
  return total;
}

// Grid: heads. The gradient of a head's sink, always added up in the same order.
template <class Config>
__global__ void __launch_bounds__(kSinkThreads) attention_backward_sinks(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  using record = attention_row_block<Config::rows>;
  constexpr int kPairs = Config::rows / 2;
  const int head = arch::block_x(), thread = arch::thread_id();
  const float sink = arch::load_global(p.sinks + head) * kLog2e;
  const int pairs = p.row_blocks_of_head * kPairs;
  float total = 0.0f;
  for (int batch = 0; batch < p.batch; ++batch) {
    const auto* const blocks = static_cast<const record*>(p.row_blocks) +
                               (int64_t{batch} * p.heads + head) * p.row_blocks_of_head;
    for (int i = thread; i < pairs; i += kSinkThreads) {
      const float4 rows =
          arch::load_global(reinterpret_cast<const float4*>(&blocks[i / kPairs].pairs[i % kPairs]));
      total = fmaf(arch::exp2_approx(sink - rows.x), rows.z, total);
      total = fmaf(arch::exp2_approx(sink - rows.y), rows.w, total);
    }
  }
  total += sink_of_blind_rows(p, head, sink);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total += arch::shuffle_xor(total, mask);
  auto* const of_warps = reinterpret_cast<float*>(arch::dynamic_shared());
  if (arch::lane_id() == 0) of_warps[arch::warp_id()] = total;
  arch::sync_block();
  if (thread != 0) return;
  for (int warp = 1; warp < kSinkThreads / 32; ++warp) total += of_warps[warp];
  arch::store_global(p.dsinks + head, -total);
}

// The rows of a sequence that see no key have a gradient of 0.
template <class Config, class Arguments>
KITTENS_DEVICE void zero_blind_rows(const Arguments& p, const attention_row_place<Config>& place) {
  const int vectors = p.head_dim / 8;
  for (int i = arch::thread_id(); i < place.sequence.blind_rows * vectors; i += kRowThreads) {
    const int row = place.sequence.q_start - 1 - i / vectors;
    auto* const to = reinterpret_cast<uint4*>(p.dq_row(place.batch, row, place.head));
    arch::store_global(to + i % vectors, uint4{0, 0, 0, 0});
  }
}

// dq of a block of rows from its integers: a thread has eight columns of some rows.
template <class Config, class Arguments>
KITTENS_DEVICE void finish_rows(const Arguments& p) {
  begin_dependent_grid();
  using T = typename Config::type;
  const attention_row_place<Config> place(p);
  if (place.m == 0) zero_blind_rows(p, place);
  if (!place.has_rows()) return;
  constexpr int kGroups = Config::head_dim / 8, kRowsAtOnce = kRowThreads / kGroups;
  const int group = arch::thread_id() % kGroups, first = arch::thread_id() / kGroups;
  if (group * 8 >= p.head_dim) return;
#pragma unroll
  for (int i = 0; i < Config::rows / kRowsAtOnce; ++i) {
    const int in_block = first + i * kRowsAtOnce, row = place.row(in_block);
    if (row == place.kNone) continue;
    // A part is 64 of the rows, or 64 of the columns; rows r and r + 8 of a warp's sixteen are in
    // the same lanes.
    const int part = Config::rows == 64 ? group / 8 : in_block / 64;
    const int warp = in_block % 64 / 16, half = in_block % 16 / 8, lane = in_block % 8 * 4;
    const auto* const pairs = reinterpret_cast<const ulonglong2*>(
        &p.parts[place.number * Config::parts + part].pairs[warp][group % 8 * 2 + half][lane]);
    const ulonglong2 left = arch::load_global(pairs), right = arch::load_global(pairs + 1);
    // Powers of two, both: exact.
    const float inverse =
        1.0f / fabsf(arch::load_global(p.dq_factors + place.number * Config::rows + in_block));
    const auto gradients = [&](uint64_t pair) {
      const auto [x, y] = attention_dq_part::unpack(pair);
      return pack<T>(static_cast<float>(x) * p.scale * inverse,
                     static_cast<float>(y) * p.scale * inverse);
    };
    T* const to = p.dq_row(place.batch, row, place.head) + group * 8;
    arch::store_global(reinterpret_cast<uint4*>(to), uint4{gradients(left.x), gradients(left.y),
                                                           gradients(right.x), gradients(right.y)});
  }
}

// Grid: row blocks, of all heads and batches.
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_finish(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  finish_rows<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_finish_strided(
    const __grid_constant__ attention_strided_rows_arguments<typename Config::type> p) {
  finish_rows<Config>(p);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
