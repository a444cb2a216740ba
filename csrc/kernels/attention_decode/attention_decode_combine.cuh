// attention_decode: adds up, row by row, what the warps of a team have of an item, and what several
// blocks have of it. Always in the same order.
#pragma once

#include "kernels/attention_decode/attention_decode_rows.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// What has been added up of one row: a lane's run of columns of 2^(s − m) v, and l, the same
// without v. Lanes that the columns leave over have the last run, too.
template <class Config>
struct decode_row {
  static constexpr int kRun = Config::width / kWarp;
  static constexpr int kRuns = Config::columns / kRun;
  using access = detail::run_access<float, kRun>;
  using run = lane_run<float, kRun>;

  float m = -INFINITY, l = 0, o[kRun] = {};

  // The first of this lane's.
  KITTENS_DEVICE static int column() { return smaller(arch::lane_id(), kRuns - 1) * kRun; }

  // Of parts that there are lane i has the sums of part i, and all have a run each of its columns.
  template <int Parts>
  KITTENS_DEVICE void add(float2 sums, const run (&values)[Parts]) {
    float most = fmaxf(m, sums.x);
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      most = fmaxf(most, arch::shuffle_xor(most, mask));
    const float base = without_infinity(most), decay = arch::exp2_approx(m - base);
    const float factor = arch::exp2_approx(sums.x - base);
    float sum = sums.y * factor;
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += arch::shuffle_xor(sum, mask);
    m = most;
    l = fmaf(l, decay, sum);
#pragma unroll
    for (int j = 0; j < kRun; ++j) o[j] *= decay;
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      const float of_part = arch::shuffle(factor, i);
      float part[kRun];
      values[i].get(part);
#pragma unroll
      for (int j = 0; j < kRun; ++j) o[j] = fmaf(part[j], of_part, o[j]);
    }
  }
};

// What the warps of `count` turns have of a row as this one has it, in shared memory: the first
// one's on.
template <class Config>
KITTENS_DEVICE decode_row<Config> combine_warps(const decode_exchange<Config>* first, int count,
                                                int row) {
  constexpr int kTurns = kWarps / Config::warps;
  using sum_of_row = decode_row<Config>;
  const int lane = arch::lane_id();
  float2 sums{-INFINITY, 0};
  if (lane < count) sums = arch::load_shared(&first[lane * Config::warps].part.row(row).sums);
  typename sum_of_row::run values[kTurns] = {};
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const float* const from = &first[i * Config::warps].part.row(row).o[sum_of_row::column()];
    if (i < count) sum_of_row::access::load_shared(values[i], from);
  }
  sum_of_row sum;
  sum.add(sums, values);
  return sum;
}

// Parts of an item: first, first + step, … < end.
struct part_range {
  int first, end, step;
};

// The rows of a part, as this warp has them, in global memory.
template <class Config>
KITTENS_DEVICE decode_record<Config>* part_records(const decode_arguments& p, int slot) {
  const int place = slot * Config::warps + team_place<Config::warps>::of_turn();
  return static_cast<decode_record<Config>*>(p.parts) + place * Config::rows;
}

// What several teams have of a row.
template <class Config>
KITTENS_DEVICE decode_row<Config> combine_parts(const decode_arguments& p, const split_item& item,
                                                const part_range& of, int row) {
  using sum_of_row = decode_row<Config>;
  const int lane = arch::lane_id();
  sum_of_row sum;
#pragma unroll 1
  for (int from = of.first; from < of.end; from += kPartsAhead * of.step) {
    float2 sums{-INFINITY, 0};
    if (lane < kPartsAhead && from + lane * of.step < of.end) {
      const int slot = item.slot(p, from + lane * of.step);
      sums = arch::load_global(&part_records<Config>(p, slot)[row].sums);
    }
    typename sum_of_row::run values[kPartsAhead];
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) {
      const int part = from + i * of.step;
      const decode_record<Config>& record = part_records<Config>(p, item.slot(p, part))[row];
      sum_of_row::access::load(values[i], &record.o[sum_of_row::column()], part < of.end);
    }
    sum.add(sums, values);
  }
  return sum;
}

// As a part, in global memory.
template <class Config>
KITTENS_DEVICE void store_part(decode_record<Config>& record, const decode_row<Config>& sum) {
  using sum_of_row = decode_row<Config>;
  typename sum_of_row::run values;
  values.set(sum.o);
  sum_of_row::access::store(&record.o[sum_of_row::column()], values);
  if (arch::lane_id() == 0) arch::store_global(&record.sums, {sum.m, sum.l});
}

template <class Config>
KITTENS_DEVICE void store_output(const output_row& out, const decode_row<Config>& sum) {
  using T = typename Config::type;
  constexpr int kRun = decode_row<Config>::kRun;
  const int first = first_column<Config>(), column = arch::lane_id() * kRun;
  if (Config::is_padded && column >= smaller(out.p.head_dim - first, Config::columns)) return;
  const float factor = out.factor(sum.m, sum.l);
  T* const data = out.template data<T>() + first + column;
#pragma unroll
  for (int i = 0; i < kRun; i += 2) {
    arch::store_global(reinterpret_cast<uint32_t*>(data + i),
                       pack<T>(sum.o[i] * factor, sum.o[i + 1] * factor));
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
