// attention, backward: what comes before and after the products. (attention_backward.cuh)
//
// dq is added up in integers: a row's partial sums times a power of two, its factor. What the sign
// of a factor says, and NaN, is how numbers that are not finite, and integers cannot be, find their
// way into dq:
//
//   positive   every partial sum of the row is finite
//   negative   some may not be: who adds one up looks, and if it is not, stores NaN as the factor
//   NaN        the row's dq is NaN: its gradient or delta is not finite, or a product overflows
#pragma once

#include <cfloat>

#include "kernels/attention/attention_backward_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// [B, S, H, D] of 16-bit elements, whose rows are aligned to 16 bytes.
template <class T>
struct head_rows {
  const T* data;
  int64_t batch_stride, row_stride, head_stride;
  KITTENS_DEVICE const T* row(int batch, int row, int head) const {
    return data + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

// Of the finite numbers of a tile of keys: the largest |v|₂ of a key, and |k|.
struct alignas(16) attention_key_bounds {
  float v, k;
  int not_finite;  // whether there are others
  int unused;

  KITTENS_DEVICE void add(const attention_key_bounds& other) {
    v = fmaxf(v, other.v);
    k = fmaxf(k, other.k);
    not_finite |= other.not_finite;
  }
  // Of all lanes that differ in these bits of their number.
  KITTENS_DEVICE void add_lanes(int mask) {
    for (; mask > 0; mask /= 2) {
      add({arch::shuffle_xor(v, mask), arch::shuffle_xor(k, mask),
           arch::shuffle_xor(not_finite, mask)});
    }
  }
};

template <class T>
struct attention_rows_arguments {
  head_rows<T> o, d_o, k, v;
  T* dq;                          // [B, Sq, Hq, D], contiguous
  const float *lse, *dlse;        // [B, Hq, Sq]; dlse or null
  const float* sinks;             // [Hq]
  float* dsinks;                  // [Hq]
  void* row_blocks;               // [B, Hq, row blocks] of attention_row_block<Rows>
  float* dq_factors;              // [B, Hq, row blocks, Rows]
  attention_dq_part<int>* parts;  // [B, Hq, row blocks, parts]
  attention_key_bounds* bounds;   // [B, Hk, key blocks]
  int rows, keys, batch, heads, key_heads, head_dim, value_dim;
  int row_blocks_of_head, key_blocks_of_head;
  float scale;
};

inline constexpr int kRowThreads = 256, kRowLanes = 16, kRowsAtOnce = kRowThreads / kRowLanes;
inline constexpr int kSinkThreads = 256;

// Eight elements of a row, as floats; zero past its end.
template <class T>
KITTENS_DEVICE void load_eight(float (&values)[8], const T* row, int column, int columns) {
  lane_run<T, 8> run{};
  if (column < columns) {
    const uint4 words = arch::load_global(reinterpret_cast<const uint4*>(row + column));
    run = {{words.x, words.y, words.z, words.w}};
  }
  run.get(values);
}

KITTENS_DEVICE float sum_of_row_lanes(float x) {
#pragma unroll
  for (int mask = kRowLanes / 2; mask > 0; mask /= 2) x += arch::shuffle_xor(x, mask);
  return x;
}
KITTENS_DEVICE float max_of_row_lanes(float x) {
#pragma unroll
  for (int mask = kRowLanes / 2; mask > 0; mask /= 2) x = fmaxf(x, arch::shuffle_xor(x, mask));
  return x;
}

KITTENS_DEVICE bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }

// |x|₂ of a row, each of whose lanes has eight elements; or more, where squares would overflow or
// vanish. Not finite if the row is not. All lanes of the warp call.
KITTENS_DEVICE float row_norm(const float (&x)[8], int columns) {
  constexpr float kLeast = 1e-30f, kMost = 1e30f;
  float square = 0.0f, largest = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    square = fmaf(x[c], x[c], square);
    largest = fmaxf(largest, fabsf(x[c]));
  }
  square = sum_of_row_lanes(square);
  const bool inside = square > kLeast && square < kMost;
  if (!arch::vote_any(!inside)) return sqrtf(square);
  largest = max_of_row_lanes(largest);
  return inside || !(square == square) ? sqrtf(square) : largest * sqrtf(float(columns));
}

// The power of two that takes a row's dq to integers: no sum of partial dq overflows, if |dq| is at
// most this. There is a factor 2 for roundings.
KITTENS_DEVICE float dq_factor(float bound) {
  constexpr int kBias = 127, kLeastFactor = -126, kMostFactor = 126;
  uint32_t bits;
  std::memcpy(&bits, &bound, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 23) - kBias;  // bound < 2^(exponent + 1)
  const int factor = 29 - exponent;
  const int within = factor > kMostFactor    ? kMostFactor
                     : factor < kLeastFactor ? kLeastFactor
                                             : factor;
  const uint32_t result_bits = static_cast<uint32_t>(within + kBias) << 23;
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

// Grid: key blocks, of all key heads and batches. What bounds their numbers.
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_bounds(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  const int block = arch::block_x() % p.key_blocks_of_head;
  const int of_all = arch::block_x() / p.key_blocks_of_head;
  const int head = of_all % p.key_heads, batch = of_all / p.key_heads;
  const int thread = arch::thread_id(), lane = thread % kRowLanes;
  attention_key_bounds bounds{};
  for (int i = thread / kRowLanes; i < Config::keys; i += kRowsAtOnce) {
    const int key = block * Config::keys + i;
    float k[8] = {}, v[8] = {};
    if (key < p.keys) {
      load_eight(k, p.k.row(batch, key, head), lane * 8, p.head_dim);
      load_eight(v, p.v.row(batch, key, head), lane * 8, p.value_dim);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (!is_finite(k[c]) || !is_finite(v[c])) {
        bounds.not_finite = 1;
        k[c] = is_finite(k[c]) ? k[c] : 0.0f;
        v[c] = is_finite(v[c]) ? v[c] : 0.0f;
      }
      bounds.k = fmaxf(bounds.k, fabsf(k[c]));
    }
    bounds.v = fmaxf(bounds.v, row_norm(v, p.value_dim));
  }
  bounds.add_lanes(16);
  auto* const of_warps = reinterpret_cast<attention_key_bounds*>(arch::dynamic_shared());
  if (arch::lane_id() == 0) of_warps[arch::warp_id()] = bounds;
  arch::sync_block();
  if (thread == 0) {
    for (int warp = 1; warp < kRowThreads / 32; ++warp) bounds.add(of_warps[warp]);
    p.bounds[arch::block_x()] = bounds;
  }
}

// Of all keys of a head. All threads call, and get the same.
template <class T>
KITTENS_DEVICE attention_key_bounds bounds_of_head(const attention_rows_arguments<T>& p, int batch,
                                                   int key_head) {
  attention_key_bounds bounds{};
  const int64_t first = (int64_t{batch} * p.key_heads + key_head) * p.key_blocks_of_head;
  for (int i = arch::thread_id(); i < p.key_blocks_of_head; i += kRowThreads) {
    const int4 words = arch::load_global(reinterpret_cast<const int4*>(p.bounds + first + i));
    attention_key_bounds found;
    std::memcpy(&found, &words, sizeof(found));
    bounds.add(found);
  }
  bounds.add_lanes(16);
  auto* const of_warps = reinterpret_cast<attention_key_bounds*>(arch::dynamic_shared());
  if (arch::lane_id() == 0) of_warps[arch::warp_id()] = bounds;
  arch::sync_block();
#pragma unroll
  for (int warp = 0; warp < kRowThreads / 32; ++warp) bounds.add(of_warps[warp]);
  return bounds;
}

// A block of queries of all, and its head.
struct attention_row_place {
  int block, head, batch;
  int64_t number;  // of the block, of all

  template <class T>
  KITTENS_DEVICE explicit attention_row_place(const attention_rows_arguments<T>& p)
      : block(arch::block_x() % p.row_blocks_of_head), number(arch::block_x()) {
    const int of_all = arch::block_x() / p.row_blocks_of_head;
    head = of_all % p.heads;
    batch = of_all / p.heads;
  }
};

// Grid: row blocks, of all heads and batches. Delta and factors of a block's rows; zeroes its dq.
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_prepare(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  using T = typename Config::type;
  constexpr int kRows = Config::rows;
  const attention_row_place place(p);
  const int thread = arch::thread_id(), lane = thread % kRowLanes;
  auto& record = static_cast<attention_row_block<kRows>*>(p.row_blocks)[place.number];
  auto* const numbers = reinterpret_cast<int4*>(p.parts + place.number * Config::parts);
  constexpr int kVectors = Config::parts * sizeof(attention_dq_part<int>) / sizeof(int4);
  for (int i = thread; i < kVectors; i += kRowThreads) {
    arch::store_global(numbers + i, int4{0, 0, 0, 0});
  }
  const attention_key_bounds bounds =
      bounds_of_head(p, place.batch, place.head / (p.heads / p.key_heads));
  for (int i = thread / kRowLanes; i < kRows; i += kRowsAtOnce) {
    const int row = place.block * kRows + i;
    float o[8] = {}, d_o[8] = {};
    if (row < p.rows) {
      load_eight(o, p.o.row(place.batch, row, place.head), lane * 8, p.value_dim);
      load_eight(d_o, p.d_o.row(place.batch, row, place.head), lane * 8, p.value_dim);
    }
    float delta = 0.0f;
#pragma unroll
    for (int c = 0; c < 8; ++c) delta = fmaf(o[c], d_o[c], delta);
    delta = sum_of_row_lanes(delta);
    const float norm = row_norm(d_o, p.value_dim);
    if (lane != 0) continue;
    float lse = -INFINITY;
    if (row < p.rows) {
      const int64_t at = (int64_t{place.batch} * p.heads + place.head) * p.rows + row;
      lse = arch::load_global(p.lse + at);
      if (p.dlse != nullptr) delta -= arch::load_global(p.dlse + at);
    }
    const bool sees_none = lse == -INFINITY;
    const float most_ds = sum_of_weights(p, place.head, lse) * fmaf(norm, bounds.v, fabsf(delta));
    arch::store_global(&record.pairs[i / 2].lse[i % 2], sees_none ? INFINITY : lse * kLog2e);
    arch::store_global(&record.pairs[i / 2].delta[i % 2], sees_none ? 0.0f : delta);
    arch::store_global(p.dq_factors + place.number * kRows + i,
                       sees_none ? 1.0f : dq_factor<T>(most_ds, lse, bounds));
  }
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
#pragma unroll 4
    for (int i = thread; i < pairs; i += kSinkThreads) {
      const float4 rows =
          arch::load_global(reinterpret_cast<const float4*>(&blocks[i / kPairs].pairs[i % kPairs]));
      total = fmaf(arch::exp2_approx(sink - rows.x), rows.z, total);
      total = fmaf(arch::exp2_approx(sink - rows.y), rows.w, total);
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total += arch::shuffle_xor(total, mask);
  auto* const of_warps = reinterpret_cast<float*>(arch::dynamic_shared());
  if (arch::lane_id() == 0) of_warps[arch::warp_id()] = total;
  arch::sync_block();
  if (thread != 0) return;
  for (int warp = 1; warp < kSinkThreads / 32; ++warp) total += of_warps[warp];
  arch::store_global(p.dsinks + head, -total);
}

// Grid: row blocks, of all heads and batches; a warpgroup for each part. dq from its integers.
template <class Config>
__global__ void __launch_bounds__(128 * Config::parts) attention_backward_finish(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  using T = typename Config::type;
  constexpr int kRows = Config::rows;
  const attention_row_place place(p);
  const int part = arch::thread_id() / 128, warp = arch::warp_id() % 4, lane = arch::lane_id();
  const auto& numbers = p.parts[place.number * Config::parts + part].numbers[warp];
  int4 loaded[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    loaded[i] = arch::load_global(reinterpret_cast<const int4*>(numbers[i][lane]));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int in_block = (kRows == 64 ? 0 : part * 64) + warp * 16 + half * 8 + lane / 4;
    const int row = place.block * kRows + in_block;
    if (row >= p.rows) continue;
    // Powers of two, both: exact.
    const float inverse = 1.0f / arch::load_global(p.dq_factors + place.number * kRows + in_block);
    T* const to =
        p.dq + ((int64_t{place.batch} * p.rows + row) * p.heads + place.head) * p.head_dim;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = (kRows == 64 ? part * 64 : 0) + i / 2 * 16 + i % 2 * 8 + lane % 4 * 2;
      if (column >= p.head_dim) continue;
      const int x = half == 0 ? loaded[i].x : loaded[i].z;
      const int y = half == 0 ? loaded[i].y : loaded[i].w;
      arch::store_global(reinterpret_cast<uint32_t*>(to + column),
                         pack<T>(static_cast<float>(x) * p.scale * inverse,
                                 static_cast<float>(y) * p.scale * inverse));
    }
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
