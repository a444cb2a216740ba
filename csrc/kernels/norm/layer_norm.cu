// layer_norm: picks the configuration, launches, and enters the launchers in the table.
#include "kernels/norm/layer_norm.h"

#include <algorithm>

#include "kernels/norm/layer_norm_backward.cuh"
#include "kernels/norm/layer_norm_forward.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::inline KITTENS_TARGET {
namespace {

using kittens::host::launch;
using kittens::host::multiprocessors;
using kittens::host::stream;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

row_layout layout_of(int64_t width, int64_t warps) { return {int(warps), 1.0f / float(width)}; }

void launch_forward(const layer_norm_forward_params& p, stream s) {
  const int64_t size = bytes_of(p.type);
  const bool aligned =
      in_runs_of_16_bytes({p.x, p.y, p.weight, p.bias}, {p.width * size, p.x_stride * size});
  with_elements(p.type, aligned, [&]<class T, int Run>() {
    const auto launch_rows = [&]<class Config>(Config) {
      const int64_t warps = ceil_div(p.width, Config::vector::length);
      const int64_t threads = Config::rows * warps * kWarp;
      const int64_t blocks =
          std::min(ceil_div(p.rows, Config::rows), Config::max_blocks(threads, multiprocessors()));
      const int64_t shared =
          sizeof(group_sum<2>::shared) + Config::rows * warps * Config::stream::kSharedBytes;
      launch(layer_norm_forward<Config>, {{blocks}, {threads}, shared}, s, p,
             layout_of(p.width, warps));
    };
    using narrow = layer_norm_forward_config<T, Run, 8, 4>;
    using normal = layer_norm_forward_config<T, Run, 32, 4>;
    using broad = layer_norm_forward_config<T, Run, 32, 1>;
    using wide = layer_norm_forward_config<T, Run, 16, 1>;
    if (p.width <= narrow::max_width) return launch_rows(narrow{});
    if (p.width <= normal::max_width) return launch_rows(normal{});
    if (p.width <= broad::max_width) return launch_rows(broad{});
    launch(layer_norm_forward_wide<wide>,
           {{p.rows}, {wide::max_threads}, sizeof(group_sum<2>::shared)}, s, p,
           layout_of(p.width, wide::max_warps));
  });
}

template <class Config>
void launch_backward_fused(const layer_norm_backward_params& p, stream s) {
  const auto shape = layer_norm_backward_shape::of(p.width);
  const int64_t exchanged = shape.groups > 1 ? shape.groups * shape.warps : 0;  // warps
  const int64_t shared =
      shape.groups * sizeof(group_sum<3>::shared) + exchanged * sizeof(group_sums<Config>);
  launch(layer_norm_backward<Config>,
         {{p.partial_rows}, {shape.groups * shape.warps * kWarp}, shared}, s, p,
         layout_of(p.width, shape.warps));
}

template <class Config>
void launch_backward_wide(const layer_norm_backward_params& p, stream s) {
  constexpr int64_t kThreads = Config::max_threads, kWarps = kThreads / kWarp;
  if (p.dx != nullptr) {
    launch(layer_norm_backward_dx_wide<Config>,
           {{p.rows}, {kThreads}, sizeof(group_sum<3>::shared)}, s, p, layout_of(p.width, kWarps));
  }
  if (p.partial != nullptr) {
    const int64_t blocks = ceil_div(p.width, Config::vector::length * kWarps);
    launch(layer_norm_backward_sums_wide<Config>, {{blocks, p.partial_rows}, {kThreads}}, s, p);
  }
}

void launch_backward(const layer_norm_backward_params& p, stream s) {
  const int64_t size = bytes_of(p.type);
  const bool aligned = in_runs_of_16_bytes({p.x, p.dy, p.dx, p.weight},
                                           {p.width * size, p.x_stride * size, p.dy_stride * size});
  with_elements(p.type, aligned, [&]<class T, int Run>() {
    using config = layer_norm_backward_config<T, Run>;
    if (p.width <= kLayerNormFusedWidth) {
      launch_backward_fused<config>(p, s);
    } else {
      launch_backward_wide<config>(p, s);
    }
  });
  if (p.partial != nullptr) {
    using reduce = layer_norm_reduce_config;
    launch(layer_norm_backward_reduce<reduce>,
           {{ceil_div(p.width, kWarp), 2},
            {reduce::warps * kWarp},
            reduce::warps * kWarp * sizeof(float)},
           s, p);
  }
}

KITTENS_LAUNCHER("layer_norm_forward", layer_norm_forward_params, launch_forward);
KITTENS_LAUNCHER("layer_norm_backward", layer_norm_backward_params, launch_backward);

}  // namespace
}  // namespace thunderkittens::inline KITTENS_TARGET
