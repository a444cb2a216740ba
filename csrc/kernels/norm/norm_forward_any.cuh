// The norms, forward, of any element types, alignment and width: what no configuration of
// norm_configs.cuh takes. Which norm it is, p.op says.
//
// A block has one row, spread over warps by slices. Where each warp has a slice, it stays in
// registers; of longer rows, slices are loaded again for each of the two or three passes: the mean,
// the variance, the outputs. From the second pass on they come from L2.
#pragma once

#include "kernels/norm/any_element.cuh"
#include "kernels/norm/norm_forward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

template <int Elements, int Warps>
struct norm_forward_any_config {
  using vector = rv<float, kWarp * Elements, ducks::rv_layout::runs<4>>;  // 8 or 16 bytes a run
  using group = group_sum<2, Warps>;
  static constexpr int max_threads = Warps * kWarp;
};

// d = a slice of x, or of dropout(x) + residual, from column `first` on.
template <register_vector V>
KITTENS_DEVICE void load_sum(V& d, const norm_forward_params& p, const dropout_mask& mask,
                             int64_t r, int64_t first, int columns) {
  load_packed<true>(d, p.x, p.type, r * p.x_rows.outer + first, columns);
  if (p.residual == nullptr) return unpack(d, p.type);
  V residual;
  load_packed<true>(residual, p.residual, p.residual_type, r * p.residual_stride + first, columns);
  unpack(d, p.type);
  unpack(residual, p.residual_type);
  add_residual</*Anywhere=*/true>(d, residual, mask, r * p.width + first);
}

// From s − m to y, packed.
template <register_vector V>
KITTENS_DEVICE void scale_any(V& d, const norm_forward_params& p, const row_moments& row,
                              int64_t first, int columns) {
  V weight, bias;
  load_any_parameter(weight, p.weight, p.weight_type, first, columns, 1.0f);
  load_any_parameter(bias, p.bias, p.bias_type, first, columns, 0.0f);
  if (p.weight_offset != 0.0f) add(weight, weight, p.weight_offset);
  if (p.round_first) {
    mul(d, d, row.rstd);
    pack(d, p.type);
    unpack(d, p.type);
    mul(d, d, weight);
  } else {
    const float shift = -row.delta * row.rstd;
    map([=](float d, float w, float b) { return fmaf(fmaf(d, row.rstd, shift), w, b); }, d, d,
        weight, bias);
  }
  pack(d, p.type);
}

// Grid: a block for each row.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 1)
    norm_forward_any(const __grid_constant__ norm_forward_params p, row_layout layout) {
  begin_dependent_grid();
  using vector = typename Config::vector;
  const int warps = layout.warps, warp = arch::warp_id();
  const int64_t r = arch::block_x();
  const int64_t slices = (p.width + vector::length - 1) / vector::length;
  const bool centred = has_mean(p.op), held = slices <= warps;
  const int first_pass = centred ? 0 : 1;
  const dropout_mask mask(p.dropout);
  using sum_shared = typename Config::group::shared;
  typename Config::group add{*reinterpret_cast<sum_shared*>(arch::dynamic_shared()), warp, warps,
                             1};

  vector d;  // s, then s − m
  float m = 0.0f;
  row_moments row{};
  for (int pass = first_pass; pass < 3; ++pass) {
    float sums[2] = {0.0f, 0.0f};
    for (int64_t slice = warp; slice < slices; slice += warps) {
      const int64_t first = slice * vector::length;
      const int columns = int(p.width - first);
      const bool loads = !held || pass == first_pass;
      if (loads) load_sum(d, p, mask, r, first, columns);
      if (pass == first_pass && p.residual != nullptr) {
        vector s = d;
        pack(s, p.residual_type);
        store_packed(p.sum, p.residual_type, r * p.width + first, columns, s);
      }
      if (centred && pass > 0 && (loads || pass == 1)) {
        sub(d, d, m);
        right_fill(d, d, columns, 0.0f);
      }
      if (pass == 2) {
        scale_any(d, p, row, first, columns);
        store_packed(p.y, p.type, r * p.width + first, columns, d);
        continue;
      }
      float here[2] = {0.0f, 0.0f};
      if (centred) sum(here[0], d);
      if (pass == 1) dot(here[1], d, d);
      sums[0] += here[0];
      sums[1] += here[1];
    }
    if (pass == 2) break;
    add(sums);
    if (pass == 0) {
      m = arch::mul_rounded(sums[0], layout.inverse_width);
    } else {
      row = moments_of(m, sums[0], sums[1], layout.inverse_width, p.eps);
    }
  }
  if (arch::thread_id() == 0) store_moments(p, row, r);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
