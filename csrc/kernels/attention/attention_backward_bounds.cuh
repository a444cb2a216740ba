// attention, backward: what the kernels before and after the products read and write, and the first
// of them: what bounds the keys of a sequence and head. (attention_backward.cuh)
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

// Of the finite numbers of some of a sequence's keys: the largest |v|₂ of a key, and |k|.
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
  T* dq;                         // [B, Sq, Hq, D], contiguous
  const float *lse, *dlse;       // [B, Hq, Sq]; dlse or null
  const float* sinks;            // [Hq]
  float* dsinks;                 // [Hq]
  void* row_blocks;              // [B, Hq, row blocks] of attention_row_block<Rows>
  float* dq_factors;             // [B, Hq, row blocks, Rows]
  attention_dq_part* parts;      // [B, Hq, row blocks, parts]
  attention_key_bounds* bounds;  // [B, Hk, bounds_of_head], of a block of 128 keys each
  attention_sequences sequences;
  int batch, heads, key_heads, head_dim, value_dim;
  int row_blocks_of_head, bounds_of_head;
  float scale;

  // Of lse and dlse.
  KITTENS_DEVICE int64_t row_of_all(int batch, int head, int row) const {
    return (int64_t{batch} * heads + head) * sequences.rows + row;
  }
  KITTENS_DEVICE T* dq_row(int batch, int row, int head) const {
    return dq + ((int64_t{batch} * sequences.rows + row) * heads + head) * head_dim;
  }
};

// The same of a dq that is a part of wider rows. What is contiguous needs no strides, and its
// kernel has none.
template <class T>
struct attention_strided_rows_arguments : attention_rows_arguments<T> {
  attention_strides dq_strides;

  KITTENS_DEVICE T* dq_row(int batch, int row, int head) const {
    return this->dq + batch * dq_strides.batch + row * dq_strides.row + head * dq_strides.head;
  }
};

inline constexpr int kKeysOfBounds = 128;
inline constexpr int kRowThreads = 256;
inline constexpr int kRowsInFlight = 4;  // of a thread, whose loads overlap

// Eight elements of a row; zeros past its end, and of no row.
template <class T>
KITTENS_DEVICE uint4 load_eight(const T* row, int column, int columns) {
  if (row == nullptr || column >= columns) return {0, 0, 0, 0};
  return arch::load_global(reinterpret_cast<const uint4*>(row + column));
}
template <class T>
KITTENS_DEVICE void to_floats(float (&values)[8], const uint4& words) {
  lane_run<T, 8>{{words.x, words.y, words.z, words.w}}.get(values);
}

template <int Lanes>
KITTENS_DEVICE float sum_of_row_lanes(float x) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) x += arch::shuffle_xor(x, mask);
  return x;
}
template <int Lanes>
KITTENS_DEVICE float max_of_row_lanes(float x) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) x = fmaxf(x, arch::shuffle_xor(x, mask));
  return x;
}

KITTENS_DEVICE bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }

// |x|₂ of a row, each of whose lanes has eight elements; or more, where squares would overflow or
// vanish. Not finite if the row is not. All lanes of the warp call.
template <int Lanes>
KITTENS_DEVICE float row_norm(const float (&x)[8], int columns) {
  constexpr float kLeast = 1e-30f, kMost = 1e30f;
  float square = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) square = fmaf(x[c], x[c], square);
  square = sum_of_row_lanes<Lanes>(square);
  const bool inside = square > kLeast && square < kMost;
  if (!arch::vote_any(!inside)) return sqrtf(square);
  float largest = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) largest = fmaxf(largest, fabsf(x[c]));
  largest = max_of_row_lanes<Lanes>(largest);
  return inside || !(square == square) ? sqrtf(square) : largest * sqrtf(float(columns));
}

// Puts zeros where numbers are not finite, and says whether there are such.
KITTENS_DEVICE int leave_finite(float (&x)[8]) {
  float zero = 0.0f;  // or NaN
#pragma unroll
  for (int c = 0; c < 8; ++c) zero = fmaf(x[c], 0.0f, zero);
  if (zero == 0.0f) return 0;
#pragma unroll
  for (int c = 0; c < 8; ++c) x[c] = is_finite(x[c]) ? x[c] : 0.0f;
  return 1;
}

// Grid: blocks of 128 keys, of all key heads and batches. What bounds their numbers.
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_bounds(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  using T = typename Config::type;
  constexpr int kLanes = Config::row_lanes, kRowsAtOnce = kRowThreads / kLanes;
  const int block = arch::block_x() % p.bounds_of_head;
  const int of_all = arch::block_x() / p.bounds_of_head;
  const int head = of_all % p.key_heads, batch = of_all / p.key_heads;
  const int thread = arch::thread_id(), lane = thread % kLanes;
  const int number = p.sequences.template of_key_block<kKeysOfBounds>(block);
  const attention_sequence sequence = p.sequences.at(number, batch);
  const int first_key =
      (block - p.sequences.template first_key_block<kKeysOfBounds>(number)) * kKeysOfBounds;
  attention_key_bounds bounds{};
#pragma unroll 1
  for (int first = thread / kLanes; first < kKeysOfBounds; first += kRowsInFlight * kRowsAtOnce) {
    uint4 k_words[kRowsInFlight], v_words[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int in_sequence = first_key + first + i * kRowsAtOnce;
      const int key = sequence.k_start + in_sequence;
      const bool exists = in_sequence < sequence.keys;
      k_words[i] = load_eight(exists ? p.k.row(batch, key, head) : nullptr, lane * 8, p.head_dim);
      v_words[i] = load_eight(exists ? p.v.row(batch, key, head) : nullptr, lane * 8, p.value_dim);
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      float k[8], v[8];
      to_floats<T>(k, k_words[i]);
      to_floats<T>(v, v_words[i]);
      bounds.not_finite |= leave_finite(k) | leave_finite(v);
#pragma unroll
      for (int c = 0; c < 8; ++c) bounds.k = fmaxf(bounds.k, fabsf(k[c]));
      bounds.v = fmaxf(bounds.v, row_norm<kLanes>(v, p.value_dim));
    }
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

// Of all keys of a head and of sequence `i`, no others: what these hold costs its dq no digits. All
// threads call, and get the same.
template <class T>
KITTENS_DEVICE attention_key_bounds bounds_of_sequence(const attention_rows_arguments<T>& p,
                                                       int batch, int key_head, int i,
                                                       const attention_sequence& sequence) {
  attention_key_bounds bounds{};
  const int64_t first = (int64_t{batch} * p.key_heads + key_head) * p.bounds_of_head +
                        p.sequences.template first_key_block<kKeysOfBounds>(i);
  const int blocks = (sequence.keys + kKeysOfBounds - 1) / kKeysOfBounds;
  for (int block = arch::thread_id(); block < blocks; block += kRowThreads) {
    const int4 words = arch::load_global(reinterpret_cast<const int4*>(p.bounds + first + block));
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

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
