// The kernels that the mutants change.
#include "norm_backward.h"

#include "kernels/norm/norm_backward.cuh"
#include "kernels/norm/norm_backward_few.cuh"
#include "kernels/norm/norm_backward_long.cuh"
#include "kernels/norm/norm_backward_medium.cuh"
#include "kernels/norm/norm_backward_pipelined.cuh"
#include "kernels/norm/norm_reduce.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::norm_kernels;
using kittens::host::launch;

namespace {

template <class Kind, class T, int Run, class R = T>
void launch_groups(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, T, Run, R>;
  const int64_t warps = shape.groups * shape.warps, exchanged = shape.groups > 1 ? warps : 0;
  const int64_t shared = shape.groups * sizeof(typename group_sum<config::sums>::shared) +
                         warps * config::stream_bytes + exchanged * sizeof(group_sums<config>);
  launch(norm_backward<config>, {{p.partial_rows}, {warps * kWarp}, shared}, nullptr, p,
         {shape.warps, 1.0f / float(p.width)});
}

template <class Kind, class R = bf16>
void launch_pipelined(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, bf16, 8, R>;
  const int64_t shared = sizeof(typename pipelined_sum<config::sums>::shared) +
                         shape.warps * kSlots * sizeof(pipelined_slot<config>);
  launch(norm_backward_pipelined<config>, {{p.partial_rows}, {shape.warps * kWarp}, shared},
         nullptr, p, {shape.warps, 1.0f / float(p.width)});
}

template <class Kind>
void launch_medium(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, bf16, 8>;
  launch(norm_backward_medium<config>,
         {{p.partial_rows},
          {shape.groups * shape.warps * kWarp},
          medium_bytes<config>(shape.warps, shape.groups)},
         nullptr, p, {shape.warps, 1.0f / float(p.width)});
}

template <class Kind, class T, int Run, class R = T>
void launch_few(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, T, Run, R>;
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

template <class Kind, class T, int Run>
void launch_long(const backward_shape& shape, const norm_backward_params& p) {
  using config = norm_backward_config<Kind, T, Run>;
  const int64_t threads = shape.warps * kWarp, columns = shape.warps * config::length;
  launch(norm_backward_long_dx<config>,
         {{p.rows}, {threads}, sizeof(typename group_sum<config::sums>::shared)}, nullptr, p,
         {shape.warps, 1.0f / float(p.width)});
  launch(norm_backward_long_sums<config>,
         {{(p.width + columns - 1) / columns, p.partial_rows}, {threads}}, nullptr, p);
}

void launch_form(const backward_shape& shape, const norm_backward_params& p) {
  switch (shape.form) {
#if CONFIGS == 0
    case backward_form::groups: return launch_groups<layer_norm_kind, bf16, 8>(shape, p);
    case backward_form::groups_of_single_elements:
      return launch_groups<layer_norm_kind, float, 1>(shape, p);
    case backward_form::any_long: return launch_long<any_norm_kind, any_element, 4>(shape, p);
    case backward_form::long_rows: return launch_long<layer_norm_kind, bf16, 8>(shape, p);
    case backward_form::any_groups: return launch_groups<any_norm_kind, any_element, 4>(shape, p);
    default: return;
#elif CONFIGS == 1
    case backward_form::rms_groups: return launch_groups<rms_norm_kind, bf16, 8>(shape, p);
    case backward_form::add_floats:
      return launch_groups<add_rms_norm_kind, bf16, 8, float>(shape, p);
    case backward_form::add_groups: return launch_groups<add_layer_norm_kind, bf16, 8>(shape, p);
    default: return;
#elif CONFIGS == 2
    case backward_form::pipelined: return launch_pipelined<layer_norm_kind>(shape, p);
    case backward_form::pipelined_rms: return launch_pipelined<rms_norm_kind>(shape, p);
    case backward_form::pipelined_add: return launch_pipelined<add_layer_norm_kind>(shape, p);
    case backward_form::pipelined_floats:
      return launch_pipelined<add_rms_norm_kind, float>(shape, p);
    case backward_form::pipelined_add_rms: return launch_pipelined<add_rms_norm_kind>(shape, p);
    default: return;
#elif CONFIGS == 4
    case backward_form::medium: return launch_medium<layer_norm_kind>(shape, p);
    case backward_form::medium_rms: return launch_medium<rms_norm_kind>(shape, p);
    case backward_form::medium_add: return launch_medium<add_layer_norm_kind>(shape, p);
    default: return;
#else
    case backward_form::few: return launch_few<layer_norm_kind, bf16, 8>(shape, p);
    case backward_form::few_rms: return launch_few<rms_norm_kind, bf16, 8>(shape, p);
    case backward_form::few_add: return launch_few<add_layer_norm_kind, bf16, 8>(shape, p);
    case backward_form::few_floats: return launch_few<add_rms_norm_kind, bf16, 8, float>(shape, p);
    case backward_form::any_few: return launch_few<any_norm_kind, any_element, 4>(shape, p);
    default: return;
#endif
  }
}

}  // namespace

void run_backward(const backward_shape& shape, const norm_backward_params& p) {
  launch_form(shape, p);
  if (p.partial == nullptr) return;
  using reduce = norm_reduce_config;
  launch(norm_backward_reduce<reduce>,
         {{(p.width + kWarp - 1) / kWarp, 2},
          {reduce::warps * kWarp},
          reduce::warps * kWarp * sizeof(float)},
         nullptr, p);
}
