// The norms, backward, for long rows: norm_backward of one group a block, whose warps never stand
// at a barrier. Blocks, sums and bits are those of norm_backward.cuh; what differs is when.
//
//   shared memory   kSlots rows a warp: its columns of dy, s and dsum, on their way or at hand
//   per row         1. of the next row: the warp's part of the sums, left at a semaphore
//                   2. of this row: the sums, which the block's warps left while this one was at 1
//                      or 2 of the row before; ds, dweight and dbias; its slot is asked for again
//
// The row at hand is read from its slot a second time: registers hold one row, not two.
#pragma once

#include "kernels/norm/norm_backward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

inline constexpr int kSlots = 3;  // this row, the next, and one on its way

// A warp's columns of a row.
template <class Config>
struct gradient_slot {
  sv<typename Config::type, Config::length> dy;
  sv<typename Config::residual_type, Config::length> s;
};
template <class Config>
struct summed_gradient_slot : gradient_slot<Config> {
  sv<typename Config::residual_type, Config::length> dsum;
};
template <class Config>
using pipelined_slot =
    std::conditional_t<Config::kind::adds, summed_gradient_slot<Config>, gradient_slot<Config>>;

// What a warp knows of a row besides.
template <class Config>
struct row_statistics {
  float mean = 0.0f, rstd = 0.0f;

  KITTENS_DEVICE void load_from(const norm_backward_params& p, int64_t r) {
    if (r >= p.rows) return;
    if constexpr (Config::kind::centred) mean = arch::load_global(p.mean + r);
    rstd = arch::load_global(p.rstd + r);
  }
};

// Adds each of the Count values over the block's warps as group_sum does, in two steps: a warp
// leaves its part, and takes the sums when it needs them. It may leave the part of one row more in
// between.
//
// A warp that takes the sums of row i has left its part of row i + 1. Another may then have taken
// those of row i + 1 and leave its part of row i + 3: four rows' sums are there at a time.
template <int Count>
struct pipelined_sum {
  static constexpr int kRows = 4;
  struct alignas(16) shared {  // slots follow it
    float partial[kRows][Count][kMaxWarps];
    semaphore complete[kRows];

    // One thread, before a barrier of the block.
    KITTENS_DEVICE void init(int warps) {
      for (semaphore& each : complete) init_semaphore(each, warps);
    }
  };

  shared& scratch;
  int warp, warps;
  cursor<kRows> left = {}, taken = {};

  KITTENS_DEVICE void leave(const float (&value)[Count]) {
    arch::sync_warp();  // the arrival also says that all lanes have read the sums taken last
    if (arch::lane_id() == 0) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        arch::store_shared(&scratch.partial[left.stage][i][warp], value[i]);
      }
      arrive(scratch.complete[left.stage]);
    }
    left.advance();
  }
  KITTENS_DEVICE void take(float (&value)[Count]) {
    wait(scratch.complete[taken.stage], taken.phase);
#pragma unroll
    for (int i = 0; i < Count; ++i) value[i] = 0.0f;
#pragma unroll 4
    for (int w = 0; w < warps; ++w) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        value[i] += arch::load_shared(&scratch.partial[taken.stage][i][w]);
      }
    }
    taken.advance();
  }
};

// A warp's columns of rows r, r + stride, … on their way to its slots. A lane reads back only what
// it copied itself, so waiting for its own copies is all it needs.
template <class Config>
struct pipelined_rows {
  using T = typename Config::type;
  using R = typename Config::residual_type;

  gl<const T, 1, 1> dy;
  gl<const R, 1, 1> s, dsum;
  pipelined_slot<Config>* slots;  // [kSlots] of this warp
  int64_t row, stride;            // the next to be asked for
  int slice;

  KITTENS_DEVICE pipelined_rows(const norm_backward_params& p, pipelined_slot<Config>* slots,
                                int64_t first_row, int64_t stride, int slice)
      : dy(matrix<const T>(p.dy, p.rows, p.width, p.dy_rows.outer)),
        s(matrix<const R>(p.x, p.rows, p.width, p.x_rows.outer)),
        dsum(matrix<const R>(p.dsum, p.dsum == nullptr ? 0 : p.rows, p.width, p.dsum_stride)),
        slots(slots),
        row(first_row),
        stride(stride),
        slice(slice) {}

  // Past the last row an empty group is committed, so that the count of groups stays right.
  KITTENS_DEVICE void request(const cursor<kSlots>& at) {
    using layout = typename Config::layout;
    auto& slot = slots[at.stage];
    if (row < dy.rows) {
      load_async<layout>(slot.dy, dy, {.r = row, .c = slice});
      load_async<layout>(slot.s, s, {.r = row, .c = slice});
    }
    if constexpr (Config::kind::adds) {
      if (row < dsum.rows) load_async<layout>(slot.dsum, dsum, {.r = row, .c = slice});
    }
    row += stride;
    arch::cp_async_commit();
  }
  KITTENS_DEVICE void read(loaded_row<Config>& row, const cursor<kSlots>& at,
                           const row_statistics<Config>& statistics) const {
    load(row.dy, slots[at.stage].dy);
    load(row.s, slots[at.stage].s);
    row.mean = statistics.mean;
    row.rstd = statistics.rstd;
  }
};

// Grid: partial_rows blocks, each of which has a row.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    norm_backward_pipelined(const __grid_constant__ norm_backward_params p, row_layout layout) {
  using vector = typename Config::vector;
  const int warp = arch::warp_id();
  const int columns = int(p.width) - warp * vector::length;  // from this warp's first on
  const int64_t stride = arch::grid_x();
  int64_t r = arch::block_x();

  using sum = pipelined_sum<Config::sums>;
  auto* shared = reinterpret_cast<typename sum::shared*>(arch::dynamic_shared());
  auto* slots = reinterpret_cast<pipelined_slot<Config>*>(shared + 1) + warp * kSlots;
  if (arch::thread_id() == 0) shared->init(layout.warps);
  arch::sync_block();
  sum add{*shared, warp, layout.warps};

  const auto load_weights = [&](vector& weight) { load_weight_slice<Config>(weight, p, warp); };
  const dropout_mask mask(p.dropout);
  weight_gradients<Config> total;
  pipelined_rows<Config> rows(p, slots, r, stride, warp);
  cursor<kSlots> at;
  for (int i = 0; i < kSlots; ++i, at.advance()) rows.request(at);

  at = {};
  loaded_row<Config> row;
  row_statistics<Config> of[3];  // this row, the next, and the one after
  of[0].load_from(p, r);
  of[1].load_from(p, r + stride);
  const auto leave_sums = [&](const cursor<kSlots>& at, const row_statistics<Config>& statistics) {
    vector d, weight;
    rows.read(row, at, statistics);
    row.centre(d, columns);
    load_weights(weight);
    float sums[Config::sums];
    row_sums<Config>(sums, d, row.dy, weight, has_mean<Config>(p));
    add.leave(sums);
  };
  arch::cp_async_wait<kSlots - 1>();
  leave_sums(at, of[0]);
  for (; r < p.rows; r += stride) {
    cursor<kSlots> next = at;
    next.advance();
    of[2].load_from(p, r + 2 * stride);
    if (r + stride < p.rows) {
      arch::cp_async_wait<kSlots - 2>();
      leave_sums(next, of[1]);
    }
    float sums[Config::sums];
    add.take(sums);

    vector d, weight;
    rows.read(row, at, of[0]);
    row.centre(d, columns);
    const row_gradient<typename Config::kind> gradient(sums, row.rstd, layout.inverse_width);
    normalise(d, gradient);
    total.add_row(row.dy, d);
    load_weights(weight);
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
  if (p.partial != nullptr) store_partial<Config>(p, total, arch::block_x(), warp);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
