// attention_decode: adds up, row by row, what the warps of a block have of an item, and then what
// several blocks have. Always in the same order.
//
// It is run once or twice by each block, when most blocks wait for it; so it is short: its code
// comes from memory, too.
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

// Adds `count` records in shared memory, from each to the next `apart`.
template <class Config>
KITTENS_DEVICE void add_records(decode_row<Config>& sum, const decode_record<Config>* records,
                                int apart, int count) {
  constexpr int kRun = kLaneRun<Config>;
  float most = sum.m;
#pragma unroll 1
  for (int i = arch::lane_id(); i < count; i += kWarp) {
    most = fmaxf(most, arch::load_shared(&records[i * apart].sums).x);
  }
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    most = fmaxf(most, arch::shuffle_xor(most, mask));
  }
  sum.raise(most);
#pragma unroll 2
  for (int i = 0; i < count; ++i) {
    lane_run<float, kRun> values;
    detail::run_access<float, kRun>::load_shared(values,
                                                 &records[i * apart].o[arch::lane_id() * kRun]);
    sum.add(arch::load_shared(&records[i * apart].sums), values);
  }
}

// A sink's part of the sum is added before it divides.
template <class Config>
KITTENS_DEVICE void store_output(const decode_arguments& p, const item_rows& item, int row,
                                 decode_row<Config> sum) {
  using T = typename Config::type;
  constexpr int kRun = kLaneRun<Config>;
  const int token = (item.first + row) / p.group;
  const int head = item.key_head * p.group + item.first + row - token * p.group;
  if (p.tensors.sinks != nullptr) {
    const float sink = arch::load_global(p.tensors.sinks + head) * kLog2e;
    sum.raise(fmaxf(sum.m, sink));
    sum.l += arch::exp2_approx(sink - without_infinity(sum.m));
  }
  const float factor = sum.l == 0 ? 0.0f : 1.0f / sum.l;  // 0: no key
  T* const out = static_cast<T*>(p.tensors.o) + item.b * p.o_strides.batch +
                 token * p.o_strides.token + head * p.o_strides.head;
#pragma unroll
  for (int i = 0; i < kRun; i += 2) {
    arch::store_global(reinterpret_cast<uint32_t*>(out + arch::lane_id() * kRun + i),
                       pack<T>(sum.o[i] * factor, sum.o[i + 1] * factor));
  }
}

// Of an item that several blocks have, as a record of the workspace.
template <class Config>
KITTENS_DEVICE void store_part(decode_record<Config>* to, const decode_row<Config>& sum) {
  constexpr int kRun = kLaneRun<Config>;
  lane_run<float, kRun> values;
  values.set(sum.o);
  detail::run_access<float, kRun>::store(&to->o[arch::lane_id() * kRun], values);
  if (arch::lane_id() == 0) arch::store_global(&to->sums, {sum.m, sum.l});
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
#pragma unroll 2
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
        add_records<Config>(sum, to, 1, count);
        if (from + count == item.parts) store_output<Config>(p, item.rows, row, sum);
        to += count;
      }
      arch::sync_warp();  // all have read them
    }
  }
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
