// attention_decode: adds up what several workers have of one item, and writes 0 for sequences
// without keys. A block has one row at a time: its warps share out the parts.
#pragma once

#include "kernels/attention_decode/attention_decode.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

inline constexpr int kCombineWarps = 8;

// Where the parts of an item lie: the first worker's is its last, the others' their first.
struct item_parts {
  int first, count;

  KITTENS_DEVICE int slot(int i) const { return i == 0 ? 2 * first + 1 : 2 * (first + i); }
};

template <class Config>
struct combine_shared {
  float parts[kCombineWarps][Config::width];
};

// Of one row: 2^(m − most) of all parts makes them parts of one sum.
template <class Config>
KITTENS_DEVICE void combine_row(const decode_arguments& p, combine_shared<Config>& shared,
                                const item_parts& parts, int row, float sink,
                                typename Config::type* out) {
  constexpr int kRun = Config::width / kWarp;
  using floats = lane_run<float, kRun>;
  const int lane = arch::lane_id(), warp = arch::warp_id();
  const auto sums_of = [&](int i) {
    return arch::load_global(reinterpret_cast<const float2*>(p.sums) + parts.slot(i) * kRows + row);
  };
  float most = sink;
  for (int i = lane; i < parts.count; i += kWarp) most = fmaxf(most, sums_of(i).x);
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    most = fmaxf(most, arch::shuffle_xor(most, mask));
  }
  most = without_infinity(most);
  float sum = 0;
  for (int i = lane; i < parts.count; i += kWarp) {
    const float2 of_part = sums_of(i);
    sum = fmaf(of_part.y, arch::exp2_approx(of_part.x - most), sum);
  }
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += arch::shuffle_xor(sum, mask);
  sum += arch::exp2_approx(sink - most);

  float o[kRun] = {};
#pragma unroll 4
  for (int i = warp; i < parts.count; i += kCombineWarps) {
    const float factor = arch::exp2_approx(sums_of(i).x - most);
    const int64_t from = int64_t{parts.slot(i)} * kRows + row;
    floats part;
    detail::run_access<float, kRun>::load(part, p.parts + from * Config::width + lane * kRun, true);
    float values[kRun];
    part.get(values);
#pragma unroll
    for (int j = 0; j < kRun; ++j) o[j] = fmaf(values[j], factor, o[j]);
  }
  floats mine;
  mine.set(o);
  detail::run_access<float, kRun>::store_shared(&shared.parts[warp][lane * kRun], mine);
  arch::sync_block();
  for (int col = 2 * arch::thread_id(); col < Config::width; col += 2 * kCombineWarps * kWarp) {
    float x = 0, y = 0;
#pragma unroll
    for (int w = 0; w < kCombineWarps; ++w) {
      const float2 pair = arch::load_shared(reinterpret_cast<const float2*>(&shared.parts[w][col]));
      x += pair.x;
      y += pair.y;
    }
    const float factor = sum == 0 ? 0.0f : 1.0f / sum;  // 0: no key
    arch::store_global(reinterpret_cast<uint32_t*>(out + col),
                       pack<typename Config::type>(x * factor, y * factor));
  }
  arch::sync_block();  // before the next row's parts
}

template <class Config>
__global__ __launch_bounds__(kCombineWarps* kWarp) void attention_decode_combine(
    const __grid_constant__ decode_arguments p) {
  using T = typename Config::type;
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<combine_shared<Config>*>(arch::dynamic_shared());
  for (int item = arch::block_x(); item < p.batch * p.items(); item += arch::grid_x()) {
    const int b = item / p.items(), in_sequence = item % p.items();
    item_parts parts{0, 0};
    if (tiles_of(p, b) > 0) {
      const int2 owners = arch::load_global(reinterpret_cast<const int2*>(p.owners) + item);
      parts = {owners.x, owners.y};
      if (parts.count == 1) continue;
    }
    const int first_row = in_sequence % p.row_tiles * kRows;
    const int end = smaller(first_row + kRows, p.rows());
    for (int row = first_row + arch::block_y(); row < end; row += arch::grid_y()) {
      const int head = in_sequence / p.row_tiles * p.group + row % p.group;
      T* const out = static_cast<T*>(p.tensors.o) + b * p.o_strides.batch +
                     row / p.group * p.o_strides.token + head * p.o_strides.head;
      const float sink = p.tensors.sinks == nullptr
                             ? -INFINITY
                             : arch::load_global(p.tensors.sinks + head) * kLog2e;
      combine_row<Config>(p, shared, parts, row - first_row, sink, out);
    }
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
