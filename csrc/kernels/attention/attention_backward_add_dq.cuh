// attention, backward: dq leaves the registers. (attention_backward.cuh)
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/attention/attention_backward_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// What takes two rows of dq to integers: those of this lane in a part of a block. (What the
// factors' signs say: attention_backward_rows.cuh.)
struct attention_dq_rows {
  float factors[2];

  // Where the two are among a block's factors: one, and eight further. `row`: of the block, the
  // first of the part.
  KITTENS_DEVICE static int place(int row) {
    return row + arch::warp_id() % 4 * 16 + arch::lane_id() / 4;
  }
  KITTENS_DEVICE static attention_dq_rows load(const float* place) {
    return {arch::load_global(place), arch::load_global(place + 8)};
  }
  KITTENS_DEVICE static attention_dq_rows load_shared(const float* place) {
    return {place[0], place[8]};
  }

  // Adds dq up, whole warps' columns of a part, from `pairs` on. Whether some of it may not be
  // finite is for mark_not_finite.
  template <int Columns>
  KITTENS_DEVICE void add(uint64_t (*pairs)[32], const rt_fl<16, Columns>& dq) const {
#pragma unroll
    for (int i = 0; i < Columns / 4; ++i) {
      const float factor = fabsf(factors[i % 2]);
      const int x = arch::round_to_int(dq.data[0][2 * i] * factor);
      const int y = arch::round_to_int(dq.data[0][2 * i + 1] * factor);
      arch::atomic_add(&pairs[i][arch::lane_id()], attention_dq_part::pack(x, y));
    }
  }
  KITTENS_DEVICE bool is_checked() const { return factors[0] < 0.0f || factors[1] < 0.0f; }
  // Integers do not hold what is not finite: the row's factor does.
  template <int Columns>
  KITTENS_DEVICE static void mark_not_finite(float* place, const rt_fl<16, Columns>& dq) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bool finite = true;
#pragma unroll
      for (int i = 2 * half; i < Columns / 2; i += 4) {
        finite = finite && fabsf(dq.data[0][i]) <= FLT_MAX && fabsf(dq.data[0][i + 1]) <= FLT_MAX;
      }
      if (!finite) arch::store_global(place + 8 * half, NAN);
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
