// attention_decode: adds up, row by row, what several blocks have of an item. Always in the same
// order.
//
// It is run when other blocks have nothing left to do, so it makes one trip to memory for many
// parts; and it is short, for its code comes from memory, too.
#pragma once

#include "kernels/attention_decode/attention_decode_item.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

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

// Adds records in shared memory.
template <class Config>
KITTENS_DEVICE void add_records(decode_row<Config>& sum, const decode_record<Config>* records,
                                int count) {
  constexpr int kRun = kLaneRun<Config>, kAtOnce = 8;
#pragma unroll 1
  for (int from = 0; from < count; from += kAtOnce) {
    float2 sums[kAtOnce];
    lane_run<float, kRun> values[kAtOnce] = {};
    float most = sum.m;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const decode_record<Config>& record = records[from + i];
      sums[i] = {-INFINITY, 0};
      if (from + i >= count) continue;
      sums[i] = arch::load_shared(&record.sums);
      detail::run_access<float, kRun>::load_shared(values[i],
                                                   &record.o[arch::lane_id() * kRun]);
      most = fmaxf(most, sums[i].x);
    }
    sum.raise(most);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum.add(sums[i], values[i]);
  }
}

template <class Config>
KITTENS_DEVICE void store_output(const decode_arguments& p, const item_rows& item, int row,
                                 const decode_row<Config>& sum) {
  using T = typename Config::type;
  constexpr int kRun = kLaneRun<Config>;
  const output_row out(p, item.b, item.key_head, item.first + row);
  const float factor = out.factor(sum.m, sum.l);
  T* const data = out.template data<T>() + arch::lane_id() * kRun;
#pragma unroll
  for (int i = 0; i < kRun; i += 2) {
    arch::store_global(reinterpret_cast<uint32_t*>(data + i),
                       pack<T>(sum.o[i] * factor, sum.o[i + 1] * factor));
  }
}

template <class Config>
KITTENS_DEVICE void copy_part(decode_record<Config>* to, const decode_record<Config>* from) {
  constexpr int kBytes = 4 * kLaneRun<Config>, kRun = kLaneRun<Config>;
  arch::cp_async<kBytes>(&to->o[arch::lane_id() * kRun], &from->o[arch::lane_id() * kRun]);
  if (arch::lane_id() == 0) arch::cp_async<8>(&to->sums, &from->sums);
}

// Adds up the parts of an item and writes its output: a warp's rows, which are `step` apart. Parts
// are copied to `room`, for that many records; all on their way together.
template <class Config>
KITTENS_DEVICE void combine_parts(const decode_arguments& p, const split_item& item, int rank,
                                  int step, decode_record<Config>* room, int records) {
  const auto* const parts = reinterpret_cast<const decode_record<Config>*>(p.parts);
  const int at_once = larger(records / item.parts, 1);  // rows
#pragma unroll 1
  for (int first = rank; first < item.rows.count; first += at_once * step) {
    const int end = smaller(item.rows.count, first + at_once * step);
    decode_row<Config> sum;
#pragma unroll 1
    for (int from = 0; from < item.parts; from += records) {
      const int count = smaller(item.parts - from, records);
      decode_record<Config>* to = room;
#pragma unroll 1
      for (int row = first; row < end; row += step) {
#pragma unroll 4
        for (int i = 0; i < count; ++i) {
          copy_part(to++, parts + int64_t{item.slot(p, from + i)} * kRows + row);
        }
      }
      arch::cp_async_commit();
      arch::cp_async_wait<0>();
      arch::sync_warp();  // all lanes' copies have landed
      to = room;
#pragma unroll 1
      for (int row = first; row < end; row += step) {
        if (from == 0) sum = {};
        add_records<Config>(sum, to, count);
        if (from + count == item.parts) store_output<Config>(p, item.rows, row, sum);
        to += count;
      }
      arch::sync_warp();  // all have read them
    }
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
