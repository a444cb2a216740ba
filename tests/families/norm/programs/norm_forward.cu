// The kernels that the mutants change: few columns a warp (512, or 256 of any element), so that
// short rows have several warps.
#include "norm_forward.h"

#include "kernels/norm/norm_forward.cuh"
#include "kernels/norm/norm_forward_any.cuh"
#include "kernels/norm/norm_forward_long.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::norm_kernels;
using kittens::host::launch;

namespace {

constexpr int kElements = 16, kAnyElements = 8, kAnyWarps = 4;

constexpr int kRegisters = 128, kRows = 4;

// Rows of up to `Warps` warps; if it is one, kRows a block. Early: the weights come with the row.
template <class Kind, class T, int Run, int Warps = 8, bool Early = false, class W = T, class R = T>
void launch_rows(const norm_forward_params& p) {
  constexpr int rows = Warps == 1 ? kRows : 1;
  using config = norm_forward_config<Kind, T, Run, kElements, Warps, kRegisters, Early, rows, W, R>;
  const int64_t warps = (p.width + config::vector::length - 1) / config::vector::length;
  launch(norm_forward<config>,
         {{(p.rows + rows - 1) / rows},
          {rows * warps * kWarp},
          sizeof(typename config::group::shared)},
         nullptr, p, {int(warps), 1.0f / float(p.width)});
}

// The same for whatever is given of weight and bias.
template <class Kind, class R = bf16>
void launch_given(const norm_forward_params& p) {
  if (p.weight == nullptr) return launch_rows<Kind, bf16, 8, 8, false, void, R>(p);
  if (p.weight_type == dtype::float32) return launch_rows<Kind, bf16, 8, 8, false, float, R>(p);
  launch_rows<Kind, bf16, 8, 8, false, bf16, R>(p);
}

template <class Kind>
void launch_long(const norm_forward_params& p) {
  using config = norm_forward_config<Kind, bf16, 8, kAnyElements, kAnyWarps, kRegisters>;
  launch(norm_forward_long<config>, {{p.rows}, {kAnyWarps * kWarp}, sizeof(group_sum<2>::shared)},
         nullptr, p, {kAnyWarps, 1.0f / float(p.width)});
}

// Whatever p says it is: of one slice a warp, or of more.
void launch_any(norm_op op, norm_forward_params p) {
  using config = norm_forward_any_config<kAnyElements, kAnyWarps>;
  p.op = op;
  const int64_t slices = (p.width + config::vector::length - 1) / config::vector::length;
  const int64_t warps = std::min<int64_t>(slices, kAnyWarps);
  launch(norm_forward_any<config>, {{p.rows}, {warps * kWarp}, sizeof(config::group::shared)},
         nullptr, p, {int(warps), 1.0f / float(p.width)});
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
    case forward_form::rows: return launch_given<layer_norm_kind>(p);
    case forward_form::rows_of_a_warp: return launch_rows<layer_norm_kind, bf16, 8, 1, true>(p);
    case forward_form::rows_of_early_weights:
      return launch_rows<layer_norm_kind, bf16, 8, 8, true>(p);
    case forward_form::rows_of_five_warps: return launch_rows<layer_norm_kind, float, 4, 5>(p);
    case forward_form::single_elements: return launch_rows<layer_norm_kind, float, 1>(p);
    case forward_form::rms_rows: return launch_given<rms_norm_kind>(p);
    case forward_form::add_rows: return launch_rows<add_layer_norm_kind, bf16, 8>(p);
    case forward_form::add_rms_rows: return launch_given<add_rms_norm_kind, float>(p);
    case forward_form::long_rows: return launch_long<layer_norm_kind>(p);
    case forward_form::rms_long: return launch_long<rms_norm_kind>(p);
    case forward_form::add_long: return launch_long<add_layer_norm_kind>(p);
    case forward_form::any: return launch_any(norm_op::layer_norm, p);
    case forward_form::any_rms: return launch_any(norm_op::rms_norm, p);
    case forward_form::any_add: return launch_any(norm_op::add_layer_norm, p);
    case forward_form::any_add_rms: return launch_any(norm_op::add_rms_norm, p);
  }
}
