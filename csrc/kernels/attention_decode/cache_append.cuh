// cache_append: writes the keys and values of new tokens where a cache has room for them, keys
// turned by the angle of their position first if there are tables (kernels/rotary has the formula).
//
//   run     of a head of one token: a thread copies one of v, and one of k, or of k's rotated
//           columns the runs of both halves that make pairs
//   block   kAppendThreads runs of one token; grid: runs, tokens of all sequences
//
// What has no place, since a length or a page is none of the cache's, is not written. For a cache
// of e4m3, what one of T would hold is divided by the scale of the head.
#pragma once

#include <kittens.cuh>

#include "kernels/attention_decode/attention_decode.h"
#include "kittens/types/fp8.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kAppendThreads = 128;

struct append_arguments {
  cache_append_tensors tensors;
  decode_strides k_strides, v_strides, k_cache_strides, v_cache_strides;
  int64_t cos_stride, sin_stride, table_stride, table_rows;
  int batch, tokens, key_heads, width, rotated;
  int pages, page_size, table_width, capacity;
  bool paged, float_tables;
};

// Where a token goes; page −1: nowhere.
struct cache_place {
  int position, page, token;

  KITTENS_DEVICE static cache_place of(const append_arguments& p, int b, int token) {
    const int64_t at = int64_t{arch::load_global(p.tensors.seqlens + b)} - p.tokens + token;
    if (at < 0 || at >= p.capacity) return {0, -1, 0};
    const int position = int(at);
    if (!p.paged) return {position, b, position};
    const int column = position / p.page_size;
    const int page = arch::load_global(p.tensors.table + b * p.table_stride + column);
    return {position, page < 0 || page >= p.pages ? -1 : page, position - column * p.page_size};
  }
};

template <class Table, int Run>
KITTENS_DEVICE void load_angles(float (&dst)[Run], const void* table, int64_t from) {
  const Table* data = static_cast<const Table*>(table) + from;
#pragma unroll
  for (int i = 0; i < Run; ++i) dst[i] = convert<float>(arch::load_global(data + i));
}

// Pairs i and i + rotated / 2 of a head, of both runs.
template <class T, int Run>
KITTENS_DEVICE void turn(const append_arguments& p, int position, int col, lane_run<T, Run>& first,
                         lane_run<T, Run>& second) {
  const int64_t row = position < p.table_rows ? position : p.table_rows - 1;
  const int64_t cos_at = row * p.cos_stride + col, sin_at = row * p.sin_stride + col;
  float cos[Run], sin[Run], a[Run], b[Run];
  if (p.float_tables) {
    load_angles<float>(cos, p.tensors.cos, cos_at);
    load_angles<float>(sin, p.tensors.sin, sin_at);
  } else {
    load_angles<T>(cos, p.tensors.cos, cos_at);
    load_angles<T>(sin, p.tensors.sin, sin_at);
  }
  first.get(a);
  second.get(b);
#pragma unroll
  for (int i = 0; i < Run; ++i) {
    const float turned = fmaf(a[i], cos[i], -(b[i] * sin[i]));
    b[i] = fmaf(a[i], sin[i], b[i] * cos[i]);
    a[i] = turned;
  }
  first.set(a);
  second.set(b);
}

template <class T, int Run>
KITTENS_DEVICE void store_cached(T* to, const lane_run<T, Run>& run, const float*) {
  detail::run_access<T, Run>::store(to, run);
}
template <class T, int Run>
KITTENS_DEVICE void store_cached(fp8e4m3* to, const lane_run<T, Run>& run, const float* scale) {
  const float divisor = scale == nullptr ? 1.0f : arch::load_global(scale);
  float values[Run];
  run.get(values);
#pragma unroll
  for (int i = 0; i < Run; ++i) values[i] /= divisor;
  if constexpr (Run == 1) {
    const auto byte = static_cast<uint8_t>(pack_e4m3(values[0], 0));
    arch::store_global(reinterpret_cast<uint8_t*>(to), byte);
  } else {
    lane_run<half, Run / 2> pairs;  // whose bits are those of two elements
#pragma unroll
    for (int i = 0; i < Run / 4; ++i) {
      pairs.words[i] = pack_e4m3(values[4 * i], values[4 * i + 1]) |
                       uint32_t{pack_e4m3(values[4 * i + 2], values[4 * i + 3])} << 16;
    }
    detail::run_access<half, Run / 2>::store(reinterpret_cast<half*>(to), pairs);
  }
}

// Run: elements that a thread moves at once, 16 bytes or one element. Cache: T or fp8e4m3.
template <class T, int Run, class Cache>
__global__ __launch_bounds__(kAppendThreads) void cache_append(
    const __grid_constant__ append_arguments p) {
  using access = detail::run_access<T, Run>;
  using run = lane_run<T, Run>;
  begin_dependent_grid();
  const int runs = p.width / Run, half = p.rotated / 2;
  const int64_t unit = int64_t{arch::block_x()} * kAppendThreads + arch::thread_id();
  if (unit >= int64_t{runs} * p.key_heads) return;
  const int head = int(unit / runs), col = int(unit % runs) * Run;
  for (int row = arch::block_y(); row < p.batch * p.tokens; row += arch::grid_y()) {
    const int b = row / p.tokens, token = row % p.tokens;
    const cache_place place = cache_place::of(p, b, token);
    if (place.page < 0) continue;
    const auto in = [&](const void* data, const decode_strides& s) {
      return static_cast<const T*>(data) + b * s.batch + token * s.token + head * s.head;
    };
    const auto out = [&](void* data, const decode_strides& s) {
      return static_cast<Cache*>(data) + place.page * s.batch + place.token * s.token +
             head * s.head;
    };
    const auto scale = [&](const float* of_heads) {
      return of_heads == nullptr ? nullptr : of_heads + head;
    };
    run value;
    access::load(value, in(p.tensors.v, p.v_strides) + col, true);
    store_cached(out(p.tensors.v_cache, p.v_cache_strides) + col, value, scale(p.tensors.v_scale));
    if (col >= half && col < p.rotated) continue;  // who has the first half has both
    const T* const k = in(p.tensors.k, p.k_strides) + col;
    Cache* const k_out = out(p.tensors.k_cache, p.k_cache_strides) + col;
    run first, second;
    access::load(first, k, true);
    if (col < half) {
      access::load(second, k + half, true);
      turn<T, Run>(p, place.position, col, first, second);
      store_cached(k_out + half, second, scale(p.tensors.k_scale));
    }
    store_cached(k_out, first, scale(p.tensors.k_scale));
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
