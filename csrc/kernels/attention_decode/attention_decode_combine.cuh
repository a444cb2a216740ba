// attention_decode: adds up, row by row, what several blocks have of an item. Always in the same
// order.
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

template <class Config>
KITTENS_DEVICE decode_row<Config> combine_parts(const decode_arguments& p, const split_item& item,
                                                int row) {
  constexpr int kRun = kLaneRun<Config>;
  const auto* const parts = static_cast<const decode_part<Config>*>(p.parts);
  decode_row<Config> sum;
#pragma unroll 1
  for (int from = 0; from < item.parts; from += kPartsAhead) {
    float2 sums[kPartsAhead];
    lane_run<float, kRun> values[kPartsAhead];
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) {
      const bool there = from + i < item.parts;
      const decode_record<Config>& record = parts[item.slot(p, from + i)].rows[row];
      sums[i] = {-INFINITY, 0};
      if (there) sums[i] = arch::load_global(&record.sums);
      detail::run_access<float, kRun>::load(values[i], &record.o[arch::lane_id() * kRun], there);
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
KITTENS_DEVICE void store_output(const output_row& out, const decode_row<Config>& sum) {
  using T = typename Config::type;
  constexpr int kRun = kLaneRun<Config>;
  const float factor = out.factor(sum.m, sum.l);
  T* const data = out.template data<T>() + arch::lane_id() * kRun;
#pragma unroll
  for (int i = 0; i < kRun; i += 2) {
    arch::store_global(reinterpret_cast<uint32_t*>(data + i),
                       pack<T>(sum.o[i] * factor, sum.o[i + 1] * factor));
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
