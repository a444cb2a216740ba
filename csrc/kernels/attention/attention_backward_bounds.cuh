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

  KITTENS_DEVICE static attention_key_bounds of(const int4& words) {
    attention_key_bounds bounds;
    std::memcpy(&bounds, &words, sizeof(bounds));
    return bounds;
  }
  KITTENS_DEVICE int4 words() const {
    int4 words;
    std::memcpy(&words, this, sizeof(words));
    return words;
  }
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
  int batch, heads, key_heads, heads_per_key, head_dim, value_dim;
  int row_blocks_of_head, bounds_of_head;
  float scale;

  // Of lse and dlse.
  KITTENS_DEVICE int64_t row_of_all(int batch, int head, int row) const {
    return (int64_t{batch} * heads + head) * sequences.rows + row;
  }
  KITTENS_DEVICE T* dq_row(int batch, int row, int head) const {
    return dq + ((int64_t{batch} * sequences.rows + row) * heads + head) * head_dim;
  }
  KITTENS_DEVICE int64_t dq_row_stride() const { return int64_t{heads} * head_dim; }
};

// The same of a dq that is a part of wider rows. What is contiguous needs no strides, and its
// kernel has none.
template <class T>
struct attention_strided_rows_arguments : attention_rows_arguments<T> {
  attention_strides dq_strides;

  KITTENS_DEVICE T* dq_row(int batch, int row, int head) const {
    return this->dq + batch * dq_strides.batch + row * dq_strides.row + head * dq_strides.head;
  }
  KITTENS_DEVICE int64_t dq_row_stride() const { return dq_strides.row; }
};

inline constexpr int kKeysOfBounds = 128;
inline constexpr int kRowThreads = 256;
// Of a multiprocessor, at least, so that its memory is busy: a thread has 64 bytes under way.
inline constexpr int kRowBlocks = 4;

// Of rows of a head that are `Step` apart, the eight columns that are this thread's.
template <class T, int Step>
struct thread_rows {
  const T* next;
  int64_t step;  // in elements

  KITTENS_DEVICE thread_rows(const head_rows<T>& rows, int batch, int first, int head, int column)
      : next(rows.row(batch, first, head) + column), step(Step * rows.row_stride) {}

  // Of the next row; zeros if it does not exist.
  KITTENS_DEVICE uint4 load(bool exists) {
    const auto* const from = reinterpret_cast<const uint4*>(next);
    next += step;
    return exists ? arch::load_global(from) : uint4{0, 0, 0, 0};
  }
};

template <class T>
KITTENS_DEVICE void to_floats(float (&values)[8], const uint4& words) {
  lane_run<T, 8>{{words.x, words.y, words.z, words.w}}.get(values);
}

// Two rows are reduced together, by the lanes that share them: even lanes get x's result, odd ones
// y's.
template <int Lanes, class F>
KITTENS_DEVICE float reduce_two_rows(float x, float y, F f) {
  const bool odd = arch::lane_id() % 2 != 0;
  float result = f(odd ? y : x, arch::shuffle_xor(odd ? x : y, 1));
#pragma unroll
  for (int mask = Lanes / 2; mask > 1; mask /= 2) {
    result = f(result, arch::shuffle_xor(result, mask));
  }
  return result;
}
template <int Lanes>
KITTENS_DEVICE float sum_of_two_rows(float x, float y) {
  return reduce_two_rows<Lanes>(x, y, [](float a, float b) { return a + b; });
}

KITTENS_DEVICE bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }

KITTENS_DEVICE float square_of(const float (&x)[8]) {
  float square = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) square = fmaf(x[c], x[c], square);
  return square;
}
KITTENS_DEVICE float largest_of(const float (&x)[8]) {
  float largest = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) largest = fmaxf(largest, fabsf(x[c]));
  return largest;
}

// Of |x|₂ squared: between them the square of a row's largest number has neither overflowed nor
// vanished.
inline constexpr float kLeastSquare = 1e-30f, kMostSquare = 1e30f;

// √x, within 2^-21: a bound of ours is twice as large as it must be.
KITTENS_DEVICE float root_of(float x) { return x * arch::rsqrt_approx(x); }

// |x|₂ of a row in even lanes and |y|₂ in odd ones; or more, where squares would overflow or
// vanish. Not finite if the row is not. All lanes of the warp call.
template <int Lanes>
KITTENS_DEVICE float norm_of_two_rows(const float (&x)[8], const float (&y)[8], int columns) {
  const float square = sum_of_two_rows<Lanes>(square_of(x), square_of(y));
  const bool inside = square > kLeastSquare && square < kMostSquare;
  if (!arch::vote_any(!inside)) return root_of(square);
  const float largest = reduce_two_rows<Lanes>(largest_of(x), largest_of(y),
                                               [](float a, float b) { return fmaxf(a, b); });
  return inside || !(square == square) ? root_of(square) : largest * root_of(float(columns));
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

// What bounds keys whose numbers are all finite, and of whose values no square overflows and not
// all vanish: `is_right` says whether they are such.
template <class T, int Lanes>
struct usual_key_bounds {
  uint32_t k_even = 0, k_odd = 0;  // bits of the largest |k| of even and odd columns, upper halves
  float v_square = 0.0f;
  bool v_is_usual = true;

  KITTENS_DEVICE void add(const uint4 (&k)[2], const uint4 (&v)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      add_pair(k[i].x & 0x7fff7fffu);
      add_pair(k[i].y & 0x7fff7fffu);
      add_pair(k[i].z & 0x7fff7fffu);
      add_pair(k[i].w & 0x7fff7fffu);
    }
    float x[8], y[8];
    to_floats<T>(x, v[0]);
    to_floats<T>(y, v[1]);
    const float square = sum_of_two_rows<Lanes>(square_of(x), square_of(y));
    v_is_usual = v_is_usual && square < kMostSquare;  // fmaxf would pass over NaN
    v_square = fmaxf(v_square, square);
  }
  KITTENS_DEVICE float largest_k() const {
    float even, odd;
    unpack<T>(even, odd, k_even > k_odd ? k_even : k_odd);
    return odd;
  }
  KITTENS_DEVICE bool is_right() const {
    return v_is_usual && v_square > kLeastSquare && is_finite(largest_k());
  }
  KITTENS_DEVICE attention_key_bounds get() const {
    attention_key_bounds bounds{};
    bounds.v = root_of(v_square);
    bounds.k = largest_k();
    return bounds;
  }

 private:
  // Without their signs, numbers are ordered as their bits are; what is below only decides between
  // equal ones.
  KITTENS_DEVICE void add_pair(uint32_t bits) {
    k_odd = bits > k_odd ? bits : k_odd;
    k_even = bits << 16 > k_even ? bits << 16 : k_even;
  }
};

// The same of any keys.
template <class T, int Lanes>
struct any_key_bounds {
  int columns;  // Dv
  attention_key_bounds bounds{};

  KITTENS_DEVICE void add(const uint4 (&k_words)[2], const uint4 (&v_words)[2]) {
    float k[2][8], v[2][8];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to_floats<T>(k[i], k_words[i]);
      to_floats<T>(v[i], v_words[i]);
      bounds.not_finite |= leave_finite(k[i]) | leave_finite(v[i]);
      bounds.k = fmaxf(bounds.k, largest_of(k[i]));
    }
    bounds.v = fmaxf(bounds.v, norm_of_two_rows<Lanes>(v[0], v[1], columns));
  }
};

// Adds this thread's keys of a block: of `keys` of a head, from row `first_key` of k and v on.
template <class Config, class Bounds>
KITTENS_DEVICE void add_keys(Bounds& bounds,
                             const attention_rows_arguments<typename Config::type>& p, int batch,
                             int head, int first_key, int keys) {
  using T = typename Config::type;
  constexpr int kLanes = Config::row_lanes, kRowsAtOnce = kRowThreads / kLanes;
  const int column = arch::thread_id() % kLanes * 8, first = arch::thread_id() / kLanes;
  thread_rows<T, kRowsAtOnce> k_rows(p.k, batch, first_key + first, head, column);
  thread_rows<T, kRowsAtOnce> v_rows(p.v, batch, first_key + first, head, column);
  const int k_end = column < p.head_dim ? keys : 0, v_end = column < p.value_dim ? keys : 0;
#pragma unroll 1
  for (int key = first; key < kKeysOfBounds; key += 2 * kRowsAtOnce) {
    uint4 k[2], v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      k[i] = k_rows.load(key + i * kRowsAtOnce < k_end);
      v[i] = v_rows.load(key + i * kRowsAtOnce < v_end);
    }
    bounds.add(k, v);
  }
}

// Grid: blocks of 128 keys, of all key heads and batches. What bounds their numbers.
template <class Config>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) attention_backward_bounds(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  begin_dependent_grid();
  using T = typename Config::type;
  const int block = arch::block_x() % p.bounds_of_head;
  const int of_all = arch::block_x() / p.bounds_of_head;
  const int head = of_all % p.key_heads, batch = of_all / p.key_heads;
  const int number = p.sequences.template of_key_block<kKeysOfBounds>(block);
  const attention_sequence sequence = p.sequences.at(number, batch);
  const int in_sequence =
      (block - p.sequences.template first_key_block<kKeysOfBounds>(number)) * kKeysOfBounds;
  const int first_key = sequence.k_start + in_sequence, keys = sequence.keys - in_sequence;
  usual_key_bounds<T, Config::row_lanes> usual;
  add_keys<Config>(usual, p, batch, head, first_key, keys);
  attention_key_bounds bounds = usual.get();
  if (arch::vote_any(!usual.is_right())) {
    any_key_bounds<T, Config::row_lanes> any{p.value_dim};
    add_keys<Config>(any, p, batch, head, first_key, keys);
    bounds = any.bounds;
  }
  bounds.add_lanes(16);
  auto* const of_warps = reinterpret_cast<int4*>(arch::dynamic_shared());
  if (arch::lane_id() == 0) arch::store_shared(of_warps + arch::warp_id(), bounds.words());
  arch::sync_block();
  if (arch::thread_id() == 0) {
    for (int warp = 1; warp < kRowThreads / 32; ++warp) {
      bounds.add(attention_key_bounds::of(arch::load_shared(of_warps + warp)));
    }
    p.bounds[arch::block_x()] = bounds;
  }
}

// Of all keys of a head and of sequence `i`, no others: what these hold costs its dq no digits.
// Each warp gets them by itself; all of its lanes call.
template <class T>
KITTENS_DEVICE attention_key_bounds bounds_of_sequence(const attention_rows_arguments<T>& p,
                                                       int batch, int key_head, int i,
                                                       const attention_sequence& sequence) {
  attention_key_bounds bounds{};
  const int64_t first = (int64_t{batch} * p.key_heads + key_head) * p.bounds_of_head +
                        p.sequences.template first_key_block<kKeysOfBounds>(i);
  const int blocks = (sequence.keys + kKeysOfBounds - 1) / kKeysOfBounds;
#pragma unroll 1
  for (int block = arch::lane_id(); block < blocks; block += 32) {
    const auto* const from = reinterpret_cast<const int4*>(p.bounds + first + block);
    bounds.add(attention_key_bounds::of(arch::load_global(from)));
  }
  bounds.add_lanes(16);
  return bounds;
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
