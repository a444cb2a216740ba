// The kernels that the mutants change: few columns a warp (512, or 256 where rows are wide), so
// that short rows have several warps.
#include "norm_forward.h"

#include "kernels/norm/norm_forward.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::norm_kernels;
using kittens::host::launch;

namespace {

constexpr int kElements = 16, kWideElements = 8, kWideWarps = 4;

constexpr int kRegisters = 128, kRows = 4;

// Rows of up to `Warps` warps; if it is one, kRows a block. Early: the weights come with the row.
template <class Kind, class T, class R, class W, int Run, int Warps = 8, bool Early = false>
void launch_rows(const norm_forward_params& p) {
  constexpr int rows = Warps == 1 ? kRows : 1;
  using config = norm_forward_config<Kind, T, R, W, Run, kElements, Warps, kRegisters, Early, rows>;
  const int64_t warps = (p.width + config::vector::length - 1) / config::vector::length;
  launch(norm_forward<config>,
         {{(p.rows + rows - 1) / rows},
          {rows * warps * kWarp},
          sizeof(typename config::group::shared)},
         nullptr, p, {int(warps), 1.0f / float(p.width)});
}

// The same for whatever is given of weight and bias.
template <class Kind, class T, class R, int Run>
void launch_given(const norm_forward_params& p) {
  if (p.weight == nullptr) return launch_rows<Kind, T, R, void, Run>(p);
  if (p.weight_type == dtype::float32) return launch_rows<Kind, T, R, float, Run>(p);
  launch_rows<Kind, T, R, T, Run>(p);
}

template <class Kind, class T, class R, int Run>
void launch_wide(const norm_forward_params& p) {
  using config = norm_forward_config<Kind, T, R, T, Run, kWideElements, kWideWarps, kRegisters>;
  launch(norm_forward_wide<config>, {{p.rows}, {kWideWarps * kWarp}, sizeof(group_sum<2>::shared)},
         nullptr, p, {kWideWarps, 1.0f / float(p.width)});
}

__global__ void store_factors(const __grid_constant__ dropout_params dropout, int64_t first,
                              float* factor) {
  float factors[4];
  dropout_mask(dropout).factors(factors, first);
  for (int i = 0; i < 4; ++i) arch::store_global(factor + i, factors[i]);
}

}  // namespace

void run_factors(const dropout_params& dropout, int64_t first, float* factor) {
  launch(store_factors, {{1}, {1}}, nullptr, dropout, first, factor);
}

void run_forward(forward_form form, const norm_forward_params& p) {
  switch (form) {
    case forward_form::rows: return launch_given<layer_norm_kind, bf16, void, 8>(p);
    case forward_form::rows_of_a_warp:
      return launch_rows<layer_norm_kind, bf16, void, bf16, 8, 1, true>(p);
    case forward_form::rows_of_early_weights:
      return launch_rows<layer_norm_kind, bf16, void, bf16, 8, 8, true>(p);
    case forward_form::rows_of_five_warps:
      return launch_rows<layer_norm_kind, float, void, float, 4, 5>(p);
    case forward_form::single_elements:
      return launch_rows<layer_norm_kind, float, void, float, 1>(p);
    case forward_form::wide: return launch_wide<layer_norm_kind, bf16, void, 8>(p);
    case forward_form::wide_single_elements: return launch_wide<layer_norm_kind, float, void, 1>(p);
    case forward_form::rms_rows: return launch_given<rms_norm_kind, bf16, void, 8>(p);
    case forward_form::rms_wide: return launch_wide<rms_norm_kind, bf16, void, 8>(p);
    case forward_form::add_rms_rows: return launch_given<add_rms_norm_kind, bf16, float, 8>(p);
    case forward_form::add_rows: return launch_rows<add_layer_norm_kind, bf16, bf16, bf16, 8>(p);
    case forward_form::add_single_elements:
      return launch_rows<add_layer_norm_kind, float, float, float, 1>(p);
    case forward_form::add_wide_single_elements:
      return launch_wide<add_layer_norm_kind, float, float, 1>(p);
    case forward_form::add_wide: return launch_wide<add_layer_norm_kind, bf16, bf16, 8>(p);
  }
}
