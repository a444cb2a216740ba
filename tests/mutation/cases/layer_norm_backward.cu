// The kernels that the mutants change.
#include "layer_norm_backward.h"

#include "kernels/norm/layer_norm_backward.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using kittens::host::launch;

namespace {

template <class T, int Run>
void launch_groups(const backward_shape& shape, const layer_norm_backward_params& p) {
  using config = layer_norm_backward_config<T, Run>;
  const int64_t warps = shape.groups * shape.warps, exchanged = shape.groups > 1 ? warps : 0;
  const int64_t shared =
      shape.groups * sizeof(group_sum<3>::shared) + exchanged * sizeof(group_sums<config>);
  launch(layer_norm_backward<config>, {{p.partial_rows}, {warps * kWarp}, shared}, nullptr, p,
         {shape.warps, 1.0f / float(p.width)});
}

template <class T, int Run>
void launch_wide(const backward_shape& shape, const layer_norm_backward_params& p) {
  using config = layer_norm_backward_config<T, Run>;
  const int64_t threads = shape.warps * kWarp, columns = shape.warps * config::length;
  launch(layer_norm_backward_dx_wide<config>, {{p.rows}, {threads}, sizeof(group_sum<3>::shared)},
         nullptr, p, {shape.warps, 1.0f / float(p.width)});
  launch(layer_norm_backward_sums_wide<config>,
         {{(p.width + columns - 1) / columns, p.partial_rows}, {threads}}, nullptr, p);
}

}  // namespace

void run_backward(const backward_shape& shape, const layer_norm_backward_params& p) {
  switch (shape.form) {
    case backward_form::groups: launch_groups<bf16, 8>(shape, p); break;
    case backward_form::groups_of_single_elements: launch_groups<float, 1>(shape, p); break;
    case backward_form::wide: launch_wide<bf16, 8>(shape, p); break;
    case backward_form::wide_single_elements: launch_wide<float, 1>(shape, p); break;
  }
  if (p.partial == nullptr) return;
  using reduce = layer_norm_reduce_config;
  launch(layer_norm_backward_reduce<reduce>,
         {{(p.width + kWarp - 1) / kWarp, 2},
          {reduce::warps * kWarp},
          reduce::warps * kWarp * sizeof(float)},
         nullptr, p);
}
