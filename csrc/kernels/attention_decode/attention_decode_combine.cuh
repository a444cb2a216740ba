// attention_decode: adds up what several workers have of one item, and writes 0 for sequences
// without keys. Each row is a team's, of one warp or, where items have many parts, of all of a
// block's, which share them out.
#pragma once

#include "kernels/attention_decode/attention_decode.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

inline constexpr int kCombineWarps = 8;
// Parts that a warp has on their way at once. With 8 warps they are 72: 528 workers that share the
// tiles of 8 items make 67 of each, which then cost one trip to memory.
inline constexpr int kPartsAhead = 9;

template <class Config, int Warps>
struct combine_shared {
  float parts[Warps][Config::width];
  float2 sums[Warps];
};

// What has been added up of one row: a run of columns of 2^(s − m) v, and l, the same without v.
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

// Of one row: the parts that a warp of a team of Warps has.
template <class Config, int Warps, int Run>
KITTENS_DEVICE combined_row<Run> combine_parts(const decode_arguments& p, const item_parts& parts,
                                               int row) {
  combined_row<Run> sum;
  for (int from = arch::warp_id() % Warps; from < parts.count; from += Warps * kPartsAhead) {
    float2 sums[kPartsAhead];
    lane_run<float, Run> values[kPartsAhead];
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) {
      const int part = from + i * Warps;
      const int64_t at = int64_t{parts.slot(part)} * kRows + row;
      sums[i] = {-INFINITY, 0};
      if (part < parts.count) {
        sums[i] = arch::load_global(reinterpret_cast<const float2*>(p.sums) + at);
      }
      detail::run_access<float, Run>::load(
          values[i], p.parts + at * Config::width + arch::lane_id() * Run, part < parts.count);
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

// Adds up what the warps of a block have; the first warp has all.
template <class Config, int Warps, int Run>
KITTENS_DEVICE void combine_warps(combine_shared<Config, Warps>& shared, combined_row<Run>& sum) {
  using access = detail::run_access<float, Run>;
  const int col = arch::lane_id() * Run;
  lane_run<float, Run> values;
  values.set(sum.o);
  access::store_shared(&shared.parts[arch::warp_id()][col], values);
  if (arch::lane_id() == 0) arch::store_shared(&shared.sums[arch::warp_id()], {sum.m, sum.l});
  arch::sync_block();
  if (arch::warp_id() != 0) return;
#pragma unroll
  for (int w = 1; w < Warps; ++w) {
    const float2 sums = arch::load_shared(&shared.sums[w]);
    access::load_shared(values, &shared.parts[w][col]);
    sum.raise(fmaxf(sum.m, sums.x));
    sum.add(sums, values);
  }
}

// Warps: of a team.
template <class Config, int Warps>
__global__ __launch_bounds__(kCombineWarps* kWarp) void attention_decode_combine(
    const __grid_constant__ decode_arguments p) {
  using T = typename Config::type;
  constexpr int kRun = Config::width / kWarp, kTeams = kCombineWarps / Warps;
  begin_dependent_grid();
  const int rows = smaller(kRows, p.rows());  // of an item; the last of a head may have fewer
  const int64_t team = int64_t{arch::block_x()} * kTeams + arch::warp_id() / Warps;
  const int64_t of_all = team / rows;
  if (of_all >= p.batch * p.items()) return;
  const int b = int(of_all) / p.items(), item = int(of_all) % p.items();
  const int in_item = int(team % rows), row = item % p.row_tiles * kRows + in_item;
  if (row >= p.rows()) return;
  const item_parts parts = item_parts::of(p, b, item);
  if (parts.count == 1) return;
  auto sum = combine_parts<Config, Warps, kRun>(p, parts, in_item);
  if constexpr (Warps > 1) {
    static_assert(Warps == kCombineWarps, "the team is the block");
    combine_warps(*reinterpret_cast<combine_shared<Config, Warps>*>(arch::dynamic_shared()), sum);
    if (arch::warp_id() != 0) return;
  }
  const int head = item / p.row_tiles * p.group + row % p.group;
  if (p.tensors.sinks != nullptr) {
    const float sink = arch::load_global(p.tensors.sinks + head) * kLog2e;
    sum.raise(fmaxf(sum.m, sink));
    sum.l += arch::exp2_approx(sink - without_infinity(sum.m));
  }
  const float factor = sum.l == 0 ? 0.0f : 1.0f / sum.l;  // 0: no key
  T* const out = static_cast<T*>(p.tensors.o) + b * p.o_strides.batch +
                 row / p.group * p.o_strides.token + head * p.o_strides.head;
#pragma unroll
  for (int i = 0; i < kRun; i += 2) {
    arch::store_global(reinterpret_cast<uint32_t*>(out + arch::lane_id() * kRun + i),
                       pack<T>(sum.o[i] * factor, sum.o[i + 1] * factor));
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
