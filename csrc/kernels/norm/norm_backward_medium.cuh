// The norms, backward, of many medium rows of 16-bit elements: norm_backward with its rows on their
// way to shared memory, as those of norm_backward_pipelined. Blocks, groups, sums and bits are
// those of norm_backward.cuh.
//
//   shared memory   kSlots rows a warp: its columns of dy, s and dsum, on their way or at hand; of
//                   the block the weight, in float
//   per row         1. its sums, added over the group's warps at a barrier
//                   2. of the next row: the warp's part of the sums
//                   3. of this row: ds, dweight and dbias; its slot is asked for again
//
// It takes longer to begin and to end, and pays where some lanes have no columns.
#pragma once

#include "kernels/norm/norm_backward_pipelined.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// As loaded_row::centre, where s is zero past the last column, and a run lies before it as a whole
// or not at all.
template <class Config>
KITTENS_DEVICE void centre_runs(typename Config::vector& d, const loaded_row<Config>& row,
                                int columns) {
  using V = typename Config::vector;
  copy(d, row.s);
  if constexpr (Config::kind::centred) {
#pragma unroll
    for (int c = 0; c < V::chunks; ++c) {
      const float mean = V::first(c, arch::lane_id()) < columns ? row.mean : 0.0f;
      float values[V::run_length];
      d.data[c].get(values);
#pragma unroll
      for (float& value : values) value -= mean;
      d.data[c].set(values);
    }
  }
}

// Zeros in a lane's place of a row that there is not.
template <class Config>
KITTENS_DEVICE void clear_slot(pipelined_slot<Config>& slot) {
  typename Config::loaded_dy dy;
  typename Config::loaded_s s;
  zero(dy);
  zero(s);
  store(slot.dy, dy);
  store(slot.s, s);
}

// The shared memory of a block of `groups` groups of `warps` warps.
template <class Config>
constexpr int64_t medium_bytes(int64_t warps, int64_t groups) {
  return groups * sizeof(typename group_sum<Config::sums>::shared) +
         groups * warps * kSlots * sizeof(pipelined_slot<Config>) +
         warps * sizeof(sv<float, Config::length>);
}

// Grid: partial_rows blocks, whether or not a weight gradient is wanted.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    norm_backward_medium(const __grid_constant__ norm_backward_params p, row_layout layout) {
  using vector = typename Config::vector;
  using sum_shared = typename group_sum<Config::sums>::shared;
  const int warps = layout.warps, groups = arch::block_threads() / (warps * kWarp);
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  const int columns = int(p.width) - warp * vector::length;  // from this warp's first on
  const int64_t stride = int64_t(arch::grid_x()) * groups;
  int64_t r = int64_t(arch::block_x()) * groups + group;

  auto* shared = reinterpret_cast<sum_shared*>(arch::dynamic_shared());
  auto* slots = reinterpret_cast<pipelined_slot<Config>*>(shared + groups);
  auto* weights = reinterpret_cast<sv<float, Config::length>*>(slots + groups * warps * kSlots);
  pipelined_rows<Config> rows(p, slots + arch::warp_id() * kSlots, r, stride, warp);
  cursor<kSlots> at;
  for (int i = 0; i < kSlots; ++i, at.advance()) {
    if (rows.row >= p.rows) clear_slot<Config>(rows.slots[at.stage]);
    rows.request(at);
  }
  if (group == 0) {
    vector weight;
    load_weight_slice<Config>(weight, p, warp);
    group_sums<Config>::leave(weights[warp], weight);
  }
  arch::sync_block();
  group_sum<Config::sums> add{shared[group], warp, warps, 1 + group};

  const dropout_mask mask(p.dropout);
  weight_gradients<Config> total;
  at = {};
  loaded_row<Config> row;
  row_statistics<Config> of[3];  // this row, the next, and the one after
  of[0].load_from(p, r);
  of[1].load_from(p, r + stride);
  float part[Config::sums];  // of the sums of the row that comes next, this warp's
  const auto part_of_sums = [&](const cursor<kSlots>& at,
                                const row_statistics<Config>& statistics) {
    vector d, weight;
    rows.read(row, at, statistics);
    centre_runs(d, row, columns);
    group_sums<Config>::read(weight, weights[warp]);
    row_sums<Config>(part, d, row.dy, weight, has_mean<Config>(p));
  };
  arch::cp_async_wait<kSlots - 1>();
  if (r < p.rows) part_of_sums(at, of[0]);
  for (; r < p.rows; r += stride) {
    cursor<kSlots> next = at;
    next.advance();
    of[2].load_from(p, r + 2 * stride);
    float sums[Config::sums];
#pragma unroll
    for (int i = 0; i < Config::sums; ++i) sums[i] = part[i];
    add(sums);
    // Past the last row too, where nobody takes them: with a condition, ptxas spills 20 bytes.
    arch::cp_async_wait<kSlots - 2>();
    part_of_sums(next, of[1]);

    vector d, weight;
    rows.read(row, at, of[0]);
    centre_runs(d, row, columns);
    const row_gradient<typename Config::kind> gradient(sums, row.rstd, layout.inverse_width);
    normalise(d, gradient);
    total.add_row(row.dy, d);
    group_sums<Config>::read(weight, weights[warp]);
    vector& ds = d;
    map(gradient, ds, row.dy, weight, d);
    if constexpr (Config::kind::adds) {
      if (p.dsum != nullptr) {
        vector dsum;
        load(dsum, rows.slots[at.stage].dsum);
        kittens::add(ds, ds, dsum);
      }
    }
    store_gradients<Config>(p, mask, ds, r, warp);
    rows.request(at);
    at = next;
    of[0] = of[1];
    of[1] = of[2];
  }
  if (p.partial == nullptr) return;
  arch::sync_block();  // all groups have read their last rows
  add_groups<Config>(total, reinterpret_cast<group_sums<Config>*>(slots), groups, warps);
  if (group == 0) store_partial<Config>(p, total, arch::block_x(), warp);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
