// The kernels that the mutants change.
#include "norm_backward.h"

#include "kernels/norm/norm_backward.cuh"
#include "kernels/norm/norm_backward_few.cuh"
#include "kernels/norm/norm_backward_pipelined.cuh"
#include "kernels/norm/norm_reduce.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::norm_kernels;
using kittens::host::launch;

namespace {

template <class Kind, class T, class R, int Run>
void launch_groups(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, T, R, Run>;
  const int64_t warps = shape.groups * shape.warps, exchanged = shape.groups > 1 ? warps : 0;
  const int64_t shared = shape.groups * sizeof(typename group_sum<config::sums>::shared) +
                         warps * config::stream_bytes + exchanged * sizeof(group_sums<config>);
  launch(norm_backward<config>, {{p.partial_rows}, {warps * kWarp}, shared}, nullptr, p,
         {shape.warps, 1.0f / float(p.width)});
}

template <class Kind, class R>
void launch_pipelined(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, bf16, R, 8>;
  const int64_t shared = sizeof(typename pipelined_sum<config::sums>::shared) +
                         shape.warps * kSlots * sizeof(pipelined_slot<config>);
  launch(norm_backward_pipelined<config>, {{p.partial_rows}, {shape.warps * kWarp}, shared},
         nullptr, p, {shape.warps, 1.0f / float(p.width)});
}

template <class Kind, class T, class R, int Run>
void launch_few(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, T, R, Run>;
  using columns = few_columns<config>;
  const int warps = std::max(8, shape.warps);
  const bool sums = p.dweight != nullptr || p.dbias != nullptr;
  const int slices = sums ? int((p.width + columns::length - 1) / columns::length) : 0;
  const int64_t rows = p.dx != nullptr || p.dresidual != nullptr ? p.rows : 0;
  const int64_t shared = std::max(sizeof(typename group_sum<config::sums>::shared),
                                  columns::parts * warps * sizeof(typename columns::part));
  launch(norm_backward_few<config>, {{slices + rows}, {warps * kWarp}, shared}, nullptr, p,
         {shape.warps, 1.0f / float(p.width)}, slices);
}

template <class Kind, class T, class R, int Run>
void launch_wide(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, T, R, Run>;
  const int64_t threads = shape.warps * kWarp, columns = shape.warps * config::length;
  launch(norm_backward_dx_wide<config>,
         {{p.rows}, {threads}, sizeof(typename group_sum<config::sums>::shared)}, nullptr, p,
         {shape.warps, 1.0f / float(p.width)});
  launch(norm_backward_sums_wide<config>,
         {{(p.width + columns - 1) / columns, p.partial_rows}, {threads}}, nullptr, p);
}

}  // namespace

void run_backward(const backward_shape& shape, const norm_backward_params& p) {
  switch (shape.form) {
#if CONFIGS == 0
    case backward_form::groups: launch_groups<layer_norm_kind, bf16, void, 8>(shape, p); break;
    case backward_form::groups_of_single_elements:
      launch_groups<layer_norm_kind, float, void, 1>(shape, p);
      break;
    case backward_form::wide: launch_wide<layer_norm_kind, bf16, void, 8>(shape, p); break;
    case backward_form::wide_single_elements:
      launch_wide<layer_norm_kind, float, void, 1>(shape, p);
      break;
    default: break;
#elif CONFIGS == 1
    case backward_form::rms_groups: launch_groups<rms_norm_kind, bf16, void, 8>(shape, p); break;
    case backward_form::add_groups:
      launch_groups<add_layer_norm_kind, bf16, bf16, 8>(shape, p);
      break;
    case backward_form::add_floats:
      launch_groups<add_rms_norm_kind, bf16, float, 8>(shape, p);
      break;
    case backward_form::add_wide: launch_wide<add_layer_norm_kind, bf16, bf16, 8>(shape, p); break;
    default: break;
#elif CONFIGS == 2
    case backward_form::pipelined: launch_pipelined<layer_norm_kind, void>(shape, p); break;
    case backward_form::pipelined_rms: launch_pipelined<rms_norm_kind, void>(shape, p); break;
    case backward_form::pipelined_add: launch_pipelined<add_layer_norm_kind, bf16>(shape, p); break;
    case backward_form::pipelined_floats:
      launch_pipelined<add_rms_norm_kind, float>(shape, p);
      break;
    default: break;
#else
    case backward_form::few: launch_few<layer_norm_kind, bf16, void, 8>(shape, p); break;
    case backward_form::few_single_elements:
      launch_few<layer_norm_kind, float, void, 1>(shape, p);
      break;
    case backward_form::few_rms: launch_few<rms_norm_kind, bf16, void, 8>(shape, p); break;
    case backward_form::few_add: launch_few<add_layer_norm_kind, bf16, bf16, 8>(shape, p); break;
    case backward_form::few_add_single_elements:
      launch_few<add_layer_norm_kind, bf16, bf16, 1>(shape, p);
      break;
    case backward_form::few_floats: launch_few<add_rms_norm_kind, bf16, float, 8>(shape, p); break;
    default: break;
#endif
  }
  if (p.partial == nullptr) return;
  using reduce = norm_reduce_config;
  launch(norm_backward_reduce<reduce>,
         {{(p.width + kWarp - 1) / kWarp, 2},
          {reduce::warps * kWarp},
          reduce::warps * kWarp * sizeof(float)},
         nullptr, p);
}
