// What the norms share: the kernels of any kind and element types, and the end of the backward.
#include "kernels/norm/norm_forward_any.cuh"
#include "kernels/norm/norm_launch.cuh"
#include "kernels/norm/norm_reduce.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

void launch_any_norm_forward(const norm_forward_params& p, host::stream s) {
  if (p.width <= kNormNarrowWidth) {
    using narrow = norm_forward_narrow_config<any_norm_kind, any_element, 1>;
    return launch_forward_narrow<narrow>(p, s);
  }
  using config = norm_forward_any_config<16, 16>;
  const int64_t warps =
      std::min<int64_t>(config::max_threads / kWarp, ceil_div(p.width, config::vector::length));
  host::launch_programmatic(norm_forward_any<config>,
                            {.grid = {p.rows},
                             .block = {warps * kWarp},
                             .shared_bytes = sizeof(config::group::shared),
                             .max_threads = config::max_threads},
                            s, p, row_layout_of(p.width, warps));
}

void launch_any_norm_backward(const norm_backward_params& p, host::stream s) {
  using config = norm_backward_config<any_norm_kind, any_element, 4>;
  switch (p.path) {
    case norm_backward_path::few: return launch_backward_few<config>(p, s);
    case norm_backward_path::narrow:
      return launch_backward_narrow<norm_backward_narrow_config<any_norm_kind, any_element, 1>>(p,
                                                                                                s);
    case norm_backward_path::rows: return launch_backward_barrier<config>(p, s);
    case norm_backward_path::long_rows: return launch_backward_long<config>(p, s);
  }
}

void launch_norm_reduce(const norm_backward_params& p, host::stream s) {
  using reduce = norm_reduce_config;
  host::launch_programmatic(norm_backward_reduce<reduce>,
                            {{ceil_div(p.width, kWarp), p.dbias != nullptr ? 2 : 1},
                             {reduce::warps * kWarp},
                             reduce::warps * kWarp * sizeof(float)},
                            s, p);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
