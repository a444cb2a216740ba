// attention_decode: adds up, row by row, what the warps of a block have of an item, and then what
// several blocks have. Always in the same order.
#pragma once

#include "kernels/attention_decode/attention_decode_item.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// Parts of a row that a warp has on their way at once: of one sequence with 8 key heads 132 blocks
// have up to 18 of each, which then cost one trip to memory.
inline constexpr int kPartsAhead = 18;

// What has been added up of one row: a lane's run of columns of 2^(s − m) v, and l, the same
// without v.
template <int Run>
struct combined_row {
  float m = -INFINITY, l = 0, o[Run] = {};

  KITTENS_DEVICE void raise(float most) {
    const float decay = arch::exp2_approx(m - without_infinity(most));
    m = most;
    l *= decay;
#pragma unroll
    for (int i = 0; i < Run; ++i) o[i] *= decay;
  }
  // A part, whose m is no larger.
  KITTENS_DEVICE void add(float2 sums, const lane_run<float, Run>& values) {
    const float factor = arch::exp2_approx(sums.x - without_infinity(m));
    l = fmaf(sums.y, factor, l);
    float part[Run];
    values.get(part);
#pragma unroll
    for (int i = 0; i < Run; ++i) o[i] = fmaf(part[i], factor, o[i]);
  }
};

template <class Config>
inline constexpr int kLaneRun = Config::width / kWarp;
template <class Config>
using decode_row = combined_row<kLaneRun<Config>>;

// Of what the warps of the block have stored.
template <class Config>
KITTENS_DEVICE decode_row<Config> combine_warps(const decode_part<Config> (&parts)[kWarps],
                                                int row) {
  constexpr int kRun = kLaneRun<Config>;
  float2 sums[kWarps];
  lane_run<float, kRun> values[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    sums[w] = arch::load_shared(&parts[w].sums[row]);
    detail::run_access<float, kRun>::load_shared(values[w],
                                                 &parts[w].o[row][arch::lane_id() * kRun]);
  }
  decode_row<Config> sum;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum.m = fmaxf(sum.m, sums[w].x);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum.add(sums[w], values[w]);
  return sum;
}

// Of what the blocks have stored.
template <class Config>
KITTENS_DEVICE decode_row<Config> combine_blocks(const decode_arguments& p, const split_item& item,
                                                 int row) {
  constexpr int kRun = kLaneRun<Config>;
  decode_row<Config> sum;
  for (int from = 0; from < item.parts; from += kPartsAhead) {
    float2 sums[kPartsAhead];
    lane_run<float, kRun> values[kPartsAhead];
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) {
      const int part = from + i;
      const bool there = part < item.parts;
      const int64_t at = int64_t{item.slot(p, part)} * kRows + row;
      sums[i] = {-INFINITY, 0};
      if (there) sums[i] = arch::load_global(reinterpret_cast<const float2*>(p.sums) + at);
      detail::run_access<float, kRun>::load(
          values[i], p.parts + at * Config::width + arch::lane_id() * kRun, there);
    }
    float most = sum.m;
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) most = fmaxf(most, sums[i].x);
    sum.raise(most);
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) sum.add(sums[i], values[i]);
  }
  return sum;
}

template <class Config>
KITTENS_DEVICE void store_part(const decode_arguments& p, int slot, int row,
                               const decode_row<Config>& sum) {
  constexpr int kRun = kLaneRun<Config>;
  const int64_t at = int64_t{slot} * kRows + row;
  lane_run<float, kRun> values;
  values.set(sum.o);
  detail::run_access<float, kRun>::store(p.parts + at * Config::width + arch::lane_id() * kRun,
                                         values);
  if (arch::lane_id() == 0) {
    arch::store_global(reinterpret_cast<float2*>(p.sums) + at, {sum.m, sum.l});
  }
}

// Divided, a sink's part of the sum added first.
template <class Config>
KITTENS_DEVICE void store_output(const decode_arguments& p, const item_rows& item, int row,
                                 decode_row<Config> sum) {
  using T = typename Config::type;
  constexpr int kRun = kLaneRun<Config>;
  const int of_head = item.first + row;  // token × head of the group
  const int head = item.key_head * p.group + of_head % p.group;
  if (p.tensors.sinks != nullptr) {
    const float sink = arch::load_global(p.tensors.sinks + head) * kLog2e;
    sum.raise(fmaxf(sum.m, sink));
    sum.l += arch::exp2_approx(sink - without_infinity(sum.m));
  }
  const float factor = sum.l == 0 ? 0.0f : 1.0f / sum.l;  // 0: no key
  T* const out = static_cast<T*>(p.tensors.o) + item.b * p.o_strides.batch +
                 of_head / p.group * p.o_strides.token + head * p.o_strides.head;
#pragma unroll
  for (int i = 0; i < kRun; i += 2) {
    arch::store_global(reinterpret_cast<uint32_t*>(out + arch::lane_id() * kRun + i),
                       pack<T>(sum.o[i] * factor, sum.o[i + 1] * factor));
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
