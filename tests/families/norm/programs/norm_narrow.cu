// The kernels that the mutants change, the backward in few blocks, so that each goes round its
// loop.
#include "norm_narrow.h"

#include "kernels/norm/norm_backward_narrow.cuh"
#include "kernels/norm/norm_forward_narrow.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::norm_kernels;
using kittens::host::launch;

namespace {

template <class Kind, class T, int Run>
void launch_narrow(const norm_forward_params& p) {
  using config = norm_forward_narrow_config<Kind, T, Run>;
  const auto shape = norm_narrow_shape::of(p.width, config::place::elements);
  const int64_t rows = shape.rows_of(config::threads);
  launch(norm_forward_narrow<config>, {{(p.rows + rows - 1) / rows}, {config::threads}}, nullptr, p,
         narrow_layout::of(p.width, shape));
}

template <class Kind, class T, int Run>
void launch_narrow(const norm_backward_params& p) {
  using config = norm_backward_narrow_config<Kind, T, Run>;
  launch(norm_backward_narrow<config>,
         {{p.partial_rows}, {config::threads}, 2 * sizeof(narrow_sums)}, nullptr, p,
         narrow_layout::of(p.width, norm_narrow_shape::of(p.width)));
}

template <class Params>
void run(narrow_form form, const Params& p) {
  switch (form) {
    case narrow_form::layer: return launch_narrow<layer_norm_kind, bf16, 8>(p);
    case narrow_form::rms: return launch_narrow<rms_norm_kind, bf16, 8>(p);
    case narrow_form::rms_floats: return launch_narrow<rms_norm_kind, float, 4>(p);
    case narrow_form::any:
    case narrow_form::any_rms:
    case narrow_form::any_add:
    case narrow_form::any_add_rms: return launch_narrow<any_norm_kind, any_element, 1>(p);
  }
}

}  // namespace

void run_narrow(narrow_form form, const norm_forward_params& p) { run(form, p); }
void run_narrow(narrow_form form, const norm_backward_params& p) { run(form, p); }
