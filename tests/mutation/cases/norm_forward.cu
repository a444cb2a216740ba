// The kernels that the mutants change: few blocks, so that each has several rows, and 256 columns a
// warp, so that short rows have several warps.
#include "norm_forward.h"

#include "kernels/norm/norm_forward.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using kittens::host::launch;

namespace {

constexpr int kElements = 8, kBlocks = 2, kWideWarps = 4;

template <class Config>
int64_t warps_of(int64_t width) {
  return (width + Config::vector::length - 1) / Config::vector::length;
}

template <class Kind, class T, class R, int Run, int Rows>
void launch_rows(const norm_forward_params& p) {
  using config = norm_forward_config<Kind, T, R, Run, kElements, Rows>;
  const int64_t warps = warps_of<config>(p.width);
  const int64_t shared = sizeof(typename group_sum<config::sums>::shared) +
                         Rows * warps * config::stream::kSharedBytes;
  launch(norm_forward<config>, {{kBlocks}, {Rows * warps * kWarp}, shared}, nullptr, p,
         {int(warps), 1.0f / float(p.width)});
}

template <class Kind, class T, class R, int Run>
void launch_wide(const norm_forward_params& p) {
  using config = norm_forward_config<Kind, T, R, Run, kElements, 1>;
  launch(norm_forward_wide<config>, {{p.rows}, {kWideWarps * kWarp}, sizeof(group_sum<2>::shared)},
         nullptr, p, {kWideWarps, 1.0f / float(p.width)});
}

}  // namespace

void run_forward(forward_form form, const norm_forward_params& p) {
  switch (form) {
    case forward_form::rows_of_warps: return launch_rows<layer_norm_kind, bf16, void, 8, 4>(p);
    case forward_form::rows_of_blocks: return launch_rows<layer_norm_kind, bf16, void, 8, 1>(p);
    case forward_form::single_elements: return launch_rows<layer_norm_kind, float, void, 1, 1>(p);
    case forward_form::wide: return launch_wide<layer_norm_kind, bf16, void, 8>(p);
    case forward_form::wide_single_elements: return launch_wide<layer_norm_kind, float, void, 1>(p);
    case forward_form::rms_rows: return launch_rows<rms_norm_kind, bf16, void, 8, 1>(p);
    case forward_form::rms_wide: return launch_wide<rms_norm_kind, bf16, void, 8>(p);
    case forward_form::add_rows: return launch_rows<add_rms_norm_kind, bf16, float, 8, 1>(p);
    case forward_form::add_warps: return launch_rows<add_layer_norm_kind, bf16, bf16, 8, 4>(p);
    case forward_form::add_wide_single_elements:
      return launch_wide<add_layer_norm_kind, float, float, 1>(p);
    case forward_form::add_wide: return launch_wide<add_layer_norm_kind, bf16, bf16, 8>(p);
  }
}
