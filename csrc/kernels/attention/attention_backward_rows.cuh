// attention, backward: what comes before and after the products. (attention_backward.cuh)
#pragma once

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

template <class T>
struct attention_rows_arguments {
  head_rows<T> o, d_o, k, v;
  T* dq;                         // [B, Sq, Hq, D], contiguous
  const float *lse, *dlse;       // [B, Hq, Sq]; dlse or null
  void* row_blocks;              // [B, Hq, row blocks] of attention_row_block<Rows>
  float* dq_factors;             // [B, Hq, row blocks, Rows]
  attention_dq_part* parts;      // [B, Hq, row blocks, parts]
  attention_key_bounds* bounds;  // [B, Hk], zero before
  int rows, keys, heads, heads_per_key, head_dim, value_dim, row_blocks_of_head;
  float scale;
};

inline constexpr int kRowThreads = 256, kRowLanes = 16;

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

// Grid: (row blocks, heads, batch). Delta and norms of a block's rows; zeroes its dq.
template <class Config>
__global__ void __launch_bounds__(kRowThreads) attention_backward_prepare(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  constexpr int kRows = Config::rows, kAtOnce = kRowThreads / kRowLanes;
  const int block = arch::block_x(), head = arch::block_y(), batch = arch::block_z();
  const int thread = arch::thread_id(), lane = thread % kRowLanes;
  const int64_t place = (int64_t{batch} * p.heads + head) * p.row_blocks_of_head + block;
  auto& record = static_cast<attention_row_block<kRows>*>(p.row_blocks)[place];
  int4* const numbers = reinterpret_cast<int4*>(p.parts + place * Config::parts);
  constexpr int kVectors = Config::parts * sizeof(attention_dq_part) / sizeof(int4);
  for (int i = thread; i < kVectors; i += kRowThreads)
    arch::store_global(numbers + i, int4{0, 0, 0, 0});
  for (int i = thread / kRowLanes; i < kRows; i += kAtOnce) {
    const int row = block * kRows + i;
    float delta = 0.0f, square = 0.0f, lse = INFINITY;
    if (row < p.rows) {
      float o[8], d_o[8];
      load_eight(o, p.o.row(batch, row, head), lane * 8, p.value_dim);
      load_eight(d_o, p.d_o.row(batch, row, head), lane * 8, p.value_dim);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        delta = fmaf(o[c], d_o[c], delta);
        square = fmaf(d_o[c], d_o[c], square);
      }
    }
    delta = sum_of_row_lanes(delta);
    square = sum_of_row_lanes(square);
    if (lane == 0) {
      if (row < p.rows) {
        const int64_t at = (int64_t{batch} * p.heads + head) * p.rows + row;
        lse = arch::load_global(p.lse + at);
        if (p.dlse != nullptr) delta -= arch::load_global(p.dlse + at);
        if (lse == -INFINITY) {
          lse = INFINITY;
          delta = 0.0f;
        }
      }
      arch::store_global(&record.pairs[i / 2].lse[i % 2], lse * kLog2e);
      arch::store_global(&record.pairs[i / 2].delta[i % 2], delta);
      const auto& bounds = p.bounds[batch * (p.heads / p.heads_per_key) + head / p.heads_per_key];
      arch::store_global(p.dq_factors + place * kRows + i, dq_factor(sqrtf(square), delta, bounds));
    }
  }
}

// Grid: (blocks of 128 keys, key heads, batch).
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    attention_backward_bounds(const __grid_constant__ attention_rows_arguments<T> p) {
  constexpr int kAtOnce = kRowThreads / kRowLanes;
  const int head = arch::block_y(), batch = arch::block_z();
  const int thread = arch::thread_id(), lane = thread % kRowLanes;
  float of_v = 0.0f, of_k = 0.0f;
  for (int i = thread / kRowLanes; i < 128; i += kAtOnce) {
    const int row = arch::block_x() * 128 + i;
    float square = 0.0f;
    if (row < p.keys) {
      float k[8], v[8];
      load_eight(k, p.k.row(batch, row, head), lane * 8, p.head_dim);
      load_eight(v, p.v.row(batch, row, head), lane * 8, p.value_dim);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        square = fmaf(v[c], v[c], square);
        of_k = fmaxf(of_k, fabsf(k[c]));
      }
    }
    of_v = fmaxf(of_v, sum_of_row_lanes(square));
  }
  of_k = max_of_row_lanes(of_k);
  of_v = fmaxf(of_v, arch::shuffle_xor(of_v, 16));
  of_k = fmaxf(of_k, arch::shuffle_xor(of_k, 16));
  if (arch::lane_id() == 0) {
    auto& bounds = p.bounds[batch * (p.heads / p.heads_per_key) + head];
    of_v = sqrtf(of_v);
    int bits[2];
    std::memcpy(&bits[0], &of_v, 4);
    std::memcpy(&bits[1], &of_k, 4);
    arch::atomic_max(reinterpret_cast<int*>(&bounds.v), bits[0]);
    arch::atomic_max(reinterpret_cast<int*>(&bounds.k), bits[1]);
  }
}

// Grid: (row blocks, heads, batch), a warpgroup for each part. dq from its integers.
template <class Config>
__global__ void __launch_bounds__(128 * Config::parts) attention_backward_finish(
    const __grid_constant__ attention_rows_arguments<typename Config::type> p) {
  using T = typename Config::type;
  constexpr int kRows = Config::rows;
  const int block = arch::block_x(), head = arch::block_y(), batch = arch::block_z();
  const int part = arch::thread_id() / 128, warp = arch::warp_id() % 4, lane = arch::lane_id();
  const int64_t place = (int64_t{batch} * p.heads + head) * p.row_blocks_of_head + block;
  const auto& pairs = p.parts[place * Config::parts + part].pairs[warp];
  uint64_t loaded[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) loaded[i] = arch::load_global(&pairs[i][lane]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int in_block = (kRows == 64 ? 0 : part * 64) + warp * 16 + half * 8 + lane / 4;
    const int row = block * kRows + in_block;
    if (row >= p.rows) continue;
    const float factor = p.scale / p.dq_factors[place * kRows + in_block];
    T* const to = p.dq + ((int64_t{batch} * p.rows + row) * p.heads + head) * p.head_dim;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = (kRows == 64 ? part * 64 : 0) + i / 2 * 16 + i % 2 * 8 + lane % 4 * 2;
      if (column >= p.head_dim) continue;
      const auto [x, y] = attention_dq_part::unpack(loaded[2 * i + half]);
      arch::store_global(reinterpret_cast<uint32_t*>(to + column),
                         pack<T>(static_cast<float>(x) * factor, static_cast<float>(y) * factor));
    }
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
