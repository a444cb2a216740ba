// attention, backward: the rows of q before the products, and dq after them.
// (attention_backward.cuh)
//
// Where dq is added up, it is in integers: a row's partial sums times a power of two, its factor.
// What the sign of a factor says, and NaN, is how numbers that are not finite, and integers cannot
// be, find their way into dq:
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

KITTENS_DEVICE float product_of(const float (&x)[8], const float (&y)[8]) {
  float product = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) product = fmaf(x[c], y[c], product);
  return product;
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
};

// Two rows of a block at a time, of each of which a thread has eight columns of o and do: what even
// and odd lanes finish.
template <class Config>
struct attention_row_pairs {
  using T = typename Config::type;
  using arguments = attention_rows_arguments<T>;
  static constexpr int kLanes = Config::row_lanes, kRowsAtOnce = kRowThreads / kLanes;

  thread_rows<T, kRowsAtOnce> o_rows, do_rows;
  const float *lse_rows, *dlse_rows;  // of this block's; dlse or null
  int rows;                           // of the block, and those behind it
  int next_row;                       // the first of the next two
  uint4 o[2], d_o[2];
  int finished;  // which of the two this lane finishes
  float lse, dlse;

  KITTENS_DEVICE attention_row_pairs(const arguments& p, const attention_row_place<Config>& place)
      : attention_row_pairs(p, place, place.sequence.q_start + place.m * Config::rows,
                            arch::thread_id() % kLanes * 8, arch::thread_id() / kLanes) {}

  KITTENS_DEVICE bool load(const arguments& p) {
    if (next_row >= Config::rows) return false;
    const int end = arch::thread_id() % kLanes * 8 < p.value_dim ? rows : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool exists = next_row + i * kRowsAtOnce < end;
      o[i] = o_rows.load(exists);
      d_o[i] = do_rows.load(exists);
    }
    finished = next_row + arch::lane_id() % 2 * kRowsAtOnce;
    const bool exists = finished < rows;
    lse = exists ? arch::load_global(lse_rows + finished) : -INFINITY;
    dlse = exists && dlse_rows != nullptr ? arch::load_global(dlse_rows + finished) : 0.0f;
    next_row += 2 * kRowsAtOnce;
    return true;
  }
  // `bounds` are for the factors alone.
  KITTENS_DEVICE void finish(const arguments& p, const attention_row_place<Config>& place,
                             const attention_key_bounds& bounds) const {
    float of_o[2][8], of_do[2][8];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to_floats<T>(of_o[i], o[i]);
      to_floats<T>(of_do[i], d_o[i]);
    }
    const float delta =
        sum_of_two_rows<kLanes>(product_of(of_o[0], of_do[0]), product_of(of_o[1], of_do[1])) -
        dlse;
    const float norm =
        Config::adds_dq ? norm_of_two_rows<kLanes>(of_do[0], of_do[1], p.value_dim) : 0.0f;
    if (arch::thread_id() % kLanes >= 2) return;
    const bool sees_none = lse == -INFINITY;
    auto& record = static_cast<attention_row_block<Config::rows>*>(p.row_blocks)[place.number];
    auto& pair = record.pairs[finished / 2];
    arch::store_global(&pair.lse[finished % 2], sees_none ? INFINITY : lse * kLog2e);
    arch::store_global(&pair.delta[finished % 2], sees_none ? 0.0f : delta);
    if constexpr (Config::adds_dq) {
      const float most_ds = sum_of_weights(p, place.head, lse) * fmaf(norm, bounds.v, fabsf(delta));
      arch::store_global(p.dq_factors + place.number * Config::rows + finished,
                         sees_none ? 1.0f : dq_factor<T>(most_ds, lse, bounds));
    }
  }

 private:
  KITTENS_DEVICE attention_row_pairs(const arguments& p, const attention_row_place<Config>& place,
                                     int first_row, int column, int first)
      : o_rows(p.o, place.batch, first_row + first, place.head, column),
        do_rows(p.d_o, place.batch, first_row + first, place.head, column),
        lse_rows(p.lse + p.row_of_all(place.batch, place.head, first_row)),
        dlse_rows(p.dlse == nullptr ? nullptr
                                    : p.dlse + p.row_of_all(place.batch, place.head, first_row)),
        rows(place.sequence.rows - place.m * Config::rows),
        next_row(first) {}
};

// Grid: row blocks, of all heads and batches. Delta and factors of a block's rows; zeroes its dq.
template <class Config>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) attention_backward_prepare(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  const attention_row_place<Config> place(p);
  attention_row_pairs<Config> two_rows(p, place);
  two_rows.load(p);
  if (place.has_rows()) {
    auto* const dq = reinterpret_cast<int4*>(p.parts + place.number * Config::parts);
    constexpr int kVectors = Config::parts * sizeof(attention_dq_part) / sizeof(int4);
#pragma unroll
    for (int i = 0; i < kVectors; i += kRowThreads) {
      arch::store_global(dq + i + arch::thread_id(), int4{0, 0, 0, 0});
    }
  }
  const attention_key_bounds bounds = bounds_of_sequence(
      p, place.batch, place.head / p.heads_per_key, place.of_sequence, place.sequence);
#pragma unroll 1
  do {
    two_rows.finish(p, place, bounds);
  } while (two_rows.load(p));
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

// Grid: row blocks, of all heads and batches. Delta of a block's rows, where dq is not added up.
template <class Config>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) attention_backward_delta(
    const __grid_constant__ attention_strided_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  const attention_row_place<Config> place(p);
  attention_row_pairs<Config> two_rows(p, place);
#pragma unroll 1
  while (two_rows.load(p)) two_rows.finish(p, place, {});
  if (p.dq != nullptr && place.m == 0) zero_blind_rows(p, place);
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

// 1 / |x| of a factor, a power of two; NaN of NaN.
KITTENS_DEVICE float inverse_of_factor(float factor) {
  constexpr uint32_t kOneTwice = 2u * 127 << 23;  // the exponents of x and 1 / x
  const float x = fabsf(factor);
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  bits = kOneTwice - bits;
  float inverse;
  std::memcpy(&inverse, &bits, sizeof(bits));
  return x == x ? inverse : x;
}

// dq of a block of rows from its integers: a thread has eight columns of some rows.
template <class Config, class Arguments>
KITTENS_DEVICE void finish_rows(const Arguments& p) {
  begin_dependent_grid();
  using T = typename Config::type;
  const attention_row_place<Config> place(p);
  if (place.m == 0) zero_blind_rows(p, place);
  constexpr int kGroups = Config::head_dim / 8, kRowsAtOnce = kRowThreads / kGroups;
  const int group = arch::thread_id() % kGroups, first = arch::thread_id() / kGroups;
  if (group * 8 >= p.head_dim) return;
  const int rows = place.sequence.rows - place.m * Config::rows;
  const int first_row = place.sequence.q_start + place.m * Config::rows + first;
  // A part is 64 of the rows, or 64 of the columns; rows r and r + 8 of a warp's sixteen are in the
  // same lanes.
  const int part = Config::rows == 64 ? group / 8 : 0;
  const uint64_t* const pairs =
      &p.parts[place.number * Config::parts + part]
           .pairs[first / 16][group % 8 * 2 + first % 16 / 8][first % 8 * 4];
  const float* const factors = p.dq_factors + place.number * Config::rows + first;
  T* to = p.dq_row(place.batch, first_row, place.head) + group * 8;
  const int64_t step = kRowsAtOnce * p.dq_row_stride();
#pragma unroll
  for (int row = 0; row < Config::rows; row += 2 * kRowsAtOnce) {
    ulonglong2 left[2], right[2];
    float inverses[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int of_block = row + i * kRowsAtOnce;
      if (of_block + first >= rows) continue;
      const auto* const from = reinterpret_cast<const ulonglong2*>(
          pairs + (of_block / 16 * 16 + of_block % 16 / 8) * 32);
      left[i] = arch::load_global(from);
      right[i] = arch::load_global(from + 1);
      inverses[i] = inverse_of_factor(arch::load_global(factors + of_block));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i, to += step) {
      const auto gradients = [&](uint64_t pair) {
        const auto [x, y] = attention_dq_part::unpack(pair);
        return pack<T>(static_cast<float>(x) * p.scale * inverses[i],
                       static_cast<float>(y) * p.scale * inverses[i]);
      };
      if (row + i * kRowsAtOnce + first >= rows) continue;
      arch::store_global(reinterpret_cast<uint4*>(to),
                         uint4{gradients(left[i].x), gradients(left[i].y), gradients(right[i].x),
                               gradients(right[i].y)});
    }
  }
}

// Grid: row blocks, of all heads and batches.
template <class Config>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) attention_backward_finish(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  finish_rows<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) attention_backward_finish_strided(
    const __grid_constant__ attention_strided_rows_arguments<typename Config::type> p) {
  finish_rows<Config>(p);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
