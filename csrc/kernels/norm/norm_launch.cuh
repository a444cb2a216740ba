// How the norms are launched: the kernel follows from kind, dtypes, width and alignment, by the
// tables of norm_configs.cuh. One .cu file for each kind enters its launchers, so that they compile
// side by side; norm_any.cu has what they share.
#pragma once

#include <algorithm>

#include "kernels/norm/norm.h"
#include "kernels/norm/norm_backward.cuh"
#include "kernels/norm/norm_backward_few.cuh"
#include "kernels/norm/norm_backward_long.cuh"
#include "kernels/norm/norm_backward_medium.cuh"
#include "kernels/norm/norm_backward_narrow.cuh"
#include "kernels/norm/norm_backward_pipelined.cuh"
#include "kernels/norm/norm_configs.cuh"
#include "kernels/norm/norm_forward.cuh"
#include "kernels/norm/norm_forward_long.cuh"
#include "kernels/norm/norm_forward_narrow.cuh"
#include "kittens/host/block_shared.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// norm_any.cu: any kind, element types, width and alignment.
void launch_any_norm_forward(const norm_forward_params& p, host::stream s);
void launch_any_norm_backward(const norm_backward_params& p, host::stream s);
// The partial sums of dweight and dbias, added up.
void launch_norm_reduce(const norm_backward_params& p, host::stream s);

using host::ceil_div;

// What a block may have, by the architecture: 227 KB of sm_90a, 99 of sm_120.
inline constexpr int64_t kBlockBytes =
    int64_t{1024} * host::least_block_shared_kb(host::architecture::KITTENS_TARGET);

inline row_layout row_layout_of(int64_t width, int64_t warps) {
  return {int(warps), 1.0f / float(width)};
}

// How many elements of T a lane moves at once: 16 bytes, or one where rows are not aligned.
template <class T>
constexpr int run_of(bool aligned) {
  return aligned ? 16 / int(sizeof(T)) : 1;
}

// Returns f.operator()<T>() of the element type.
template <class F>
bool with_element(dtype type, F f) {
  switch (type) {
    case dtype::float32: return f.template operator()<float>();
    case dtype::float16: return f.template operator()<half>();
    case dtype::bfloat16: return f.template operator()<bf16>();
  }
  return false;
}

// ---- Forward ------------------------------------------------------------------------------------

inline bool is_aligned(const norm_forward_params& p) {
  const int64_t size = bytes_of(p.type), residual_size = bytes_of(p.residual_type);
  return in_runs_of_16_bytes({p.x, p.residual, p.weight, p.bias, p.y, p.sum},
                             {p.width * size, p.x_rows.outer * size, p.x_rows.inner * size,
                              p.residual_stride * residual_size});
}
// Whether weight and bias, as far as they are given, are of `type`.
inline bool parameters_are(const norm_forward_params& p, dtype type) {
  return p.weight != nullptr && p.weight_type == type && (p.bias == nullptr || p.bias_type == type);
}

inline bool holds(when condition, const norm_forward_params& p) {
  switch (condition) {
    case when::always: return true;
    case when::few_rows: return p.rows <= int64_t{2} * host::multiprocessors();
    case when::nothing_dropped: return p.dropout.seed == nullptr;
  }
  return false;
}

template <class Kind, class T, class W, class R, size_t Form>
void launch_forward_form(const norm_forward_params& p, host::stream s) {
  constexpr forward_form form = kForwardForms<Kind, T, W, R>[Form];
  using config = norm_forward_config<Kind, T, run_of<T>(form.aligned), form.elements, form.warps,
                                     form.registers, form.come == weights::early, form.rows, W, R>;
  static_assert(form.to <= config::max_width);
  const int64_t warps = ceil_div(p.width, config::vector::length);
  const int64_t rows = warps == 1 ? config::rows : 1;  // of a block
  host::launch_programmatic(norm_forward<config>,
                            {.grid = {ceil_div(p.rows, rows)},
                             .block = {rows * warps * kWarp},
                             .shared_bytes = sizeof(typename config::group::shared),
                             .max_threads = config::max_threads},
                            s, p, row_layout_of(p.width, warps));
}

// Launches the first form that takes the rows, if any does.
template <class Kind, class T, class W, class R, size_t Form = 0>
bool launch_forward_forms(const norm_forward_params& p, bool aligned, host::stream s) {
  if constexpr (Form < kForwardForms<Kind, T, W, R>.size()) {
    constexpr forward_form form = kForwardForms<Kind, T, W, R>[Form];
    if (!form.takes(p.width, aligned) || !holds(form.condition, p)) {
      return launch_forward_forms<Kind, T, W, R, Form + 1>(p, aligned, s);
    }
    launch_forward_form<Kind, T, W, R, Form>(p, s);
    return true;
  }
  return false;
}

template <class Config>
void launch_forward_narrow(const norm_forward_params& p, host::stream s) {
  const auto shape = norm_narrow_shape::of(p.width, Config::place::elements);
  host::launch_programmatic(norm_forward_narrow<Config>,
                            {{ceil_div(p.rows, shape.rows_of(Config::threads))}, {Config::threads}},
                            s, p, narrow_layout::of(p.width, shape));
}

// Rows of 16-bit elements that are longer than any form takes.
template <class Config>
void launch_forward_long(const norm_forward_params& p, host::stream s) {
  const int64_t warps =
      std::min<int64_t>(Config::max_threads / kWarp, ceil_div(p.width, Config::vector::length));
  host::launch_programmatic(norm_forward_long<Config>,
                            {.grid = {p.rows},
                             .block = {warps * kWarp},
                             .shared_bytes = sizeof(group_sum<2>::shared),
                             .max_threads = Config::max_threads},
                            s, p, row_layout_of(p.width, warps));
}

template <class Kind, class T, class R>
bool launch_own_forward(const norm_forward_params& p, host::stream s) {
  const bool aligned = is_aligned(p);
  constexpr norm_kernel_set kHas = kKernelSet<Kind, T, R>;
  if (p.width <= kNormNarrowWidth) {
    if constexpr (kHas.narrow) {
      if (aligned)
        launch_forward_narrow<norm_forward_narrow_config<Kind, T, run_of<T>(true)>>(p, s);
    }
    return kHas.narrow && aligned;
  }
  if (parameters_are(p, p.type)) {
    if (launch_forward_forms<Kind, T, T, R>(p, aligned, s)) return true;
  } else if (p.weight == nullptr && p.bias == nullptr) {
    if (launch_forward_forms<Kind, T, void, R>(p, aligned, s)) return true;
  } else if (sizeof(T) == 2 && parameters_are(p, dtype::float32)) {
    if (launch_forward_forms<Kind, T, float, R>(p, aligned, s)) return true;
  }
  if constexpr (kHas.long_rows) {
    if (!aligned || p.width <= kNormFusedWidth) return false;
    launch_forward_long<norm_forward_config<Kind, T, run_of<T>(true), 16, 16, 128>>(p, s);
    return true;
  }
  return false;
}

template <class Kind>
void launch_norm_forward(const norm_forward_params& p, host::stream s) {
  const bool launched = with_element(p.type, [&]<class T>() {
    if (p.residual == nullptr || p.residual_type == p.type) {
      return launch_own_forward<Kind, T, T>(p, s);
    }
    return launch_own_forward<Kind, T, float>(p, s);
  });
  if (!launched) launch_any_norm_forward(p, s);
}

// ---- Backward -----------------------------------------------------------------------------------

inline bool is_aligned(const norm_backward_params& p) {
  const int64_t size = bytes_of(p.type), saved_size = bytes_of(p.residual_type);
  return in_runs_of_16_bytes(
      {p.x, p.dy, p.dsum, p.dx, p.dresidual, p.weight},
      {p.width * size, p.x_rows.outer * saved_size, p.x_rows.inner * saved_size,
       p.dy_rows.outer * size, p.dy_rows.inner * size, p.dsum_stride * saved_size});
}

template <class Config>
void launch_backward_few(const norm_backward_params& p, host::stream s) {
  using columns = few_columns<Config>;
  const bool sums = p.dweight != nullptr || p.dbias != nullptr;
  const int64_t slices = sums ? ceil_div(p.width, columns::length) : 0;
  const int64_t rows = p.dx != nullptr || p.dresidual != nullptr ? p.rows : 0;
  if (slices + rows == 0) return;
  const int64_t shared = std::max(sizeof(typename group_sum<Config::sums>::shared),
                                  columns::parts * kFewWarps * sizeof(typename columns::part));
  host::launch_programmatic(norm_backward_few<Config>,
                            {.grid = {slices + rows},
                             .block = {kFewWarps * kWarp},
                             .shared_bytes = shared,
                             .max_threads = Config::max_threads},
                            s, p, row_layout_of(p.width, norm_backward_shape::of(p.width).warps),
                            int(slices));
}

template <class Config>
void launch_backward_narrow(const norm_backward_params& p, host::stream s) {
  const int64_t shared = p.partial != nullptr ? 2 * sizeof(narrow_sums) : 0;
  host::launch(norm_backward_narrow<Config>, {{p.partial_rows}, {Config::threads}, shared}, s, p,
               narrow_layout::of(p.width, norm_narrow_shape::of(p.width)));
}

template <class Config>
constexpr int64_t pipelined_bytes(const norm_backward_shape& shape) {
  return sizeof(typename pipelined_sum<Config::sums>::shared) +
         shape.warps * kSlots * sizeof(pipelined_slot<Config>);
}
template <class Config>
constexpr bool takes_pipelined(int64_t width) {
  const auto shape = norm_backward_shape::of(width);
  const int64_t bytes = pipelined_bytes<Config>(shape);
  return width > kPipelinedAbove && bytes <= kBlockBytes &&
         shape.blocks_per_multiprocessor() * bytes <= kPipelinedBytes;
}
template <class Config>
constexpr bool pipelined_fits() {
  for (int64_t width = norm_backward_shape::kWarpColumns; width <= kNormFusedWidth;
       width += norm_backward_shape::kWarpColumns) {
    const int64_t bytes = pipelined_bytes<Config>(norm_backward_shape::of(width));
    if (takes_pipelined<Config>(width) && bytes > kBlockBytes) return false;
  }
  return true;
}
template <class Config>
void launch_backward_pipelined(const norm_backward_params& p, host::stream s) {
  static_assert(pipelined_fits<Config>(), "a block's shared memory");
  const auto shape = norm_backward_shape::of(p.width);
  host::launch(norm_backward_pipelined<Config>,
               {.grid = {p.partial_rows},
                .block = {shape.warps * kWarp},
                .shared_bytes = pipelined_bytes<Config>(shape),
                .max_threads = Config::max_threads},
               s, p, row_layout_of(p.width, shape.warps));
}

template <class Config>
constexpr bool medium_fits() {
  for (int64_t width = norm_backward_shape::kWarpColumns; width <= kMediumBelow;
       width += norm_backward_shape::kWarpColumns) {
    const auto shape = norm_backward_shape::of(width);
    if (medium_bytes<Config>(shape.warps, shape.groups) > kBlockBytes) return false;
  }
  return true;
}
template <class Config>
void launch_backward_medium(const norm_backward_params& p, host::stream s) {
  static_assert(medium_fits<Config>(), "a block's shared memory");
  const auto shape = norm_backward_shape::of(p.width);
  host::launch(norm_backward_medium<Config>,
               {.grid = {p.partial_rows},
                .block = {shape.groups * shape.warps * kWarp},
                .shared_bytes = medium_bytes<Config>(shape.warps, shape.groups),
                .max_threads = Config::max_threads},
               s, p, row_layout_of(p.width, shape.warps));
}

template <class Config>
void launch_backward_barrier(const norm_backward_params& p, host::stream s) {
  const auto shape = norm_backward_shape::of(p.width);
  const int64_t warps = shape.groups * shape.warps, exchanged = shape.groups > 1 ? warps : 0;
  const int64_t shared = shape.groups * sizeof(typename group_sum<Config::sums>::shared) +
                         warps * Config::stream_bytes + exchanged * sizeof(group_sums<Config>);
  host::launch(norm_backward<Config>,
               {.grid = {p.partial_rows},
                .block = {warps * kWarp},
                .shared_bytes = shared,
                .max_threads = Config::max_threads},
               s, p, row_layout_of(p.width, shape.warps));
}

// Rows that do not fit one block's registers are read twice.
template <class Config>
void launch_backward_long(const norm_backward_params& p, host::stream s) {
  const int64_t warps =
      std::min<int64_t>(Config::max_threads / kWarp, ceil_div(p.width, Config::vector::length));
  const int64_t threads = warps * kWarp;
  if (p.dx != nullptr || p.dresidual != nullptr) {
    const int64_t shared = sizeof(typename group_sum<Config::sums>::shared);
    host::launch(norm_backward_long_dx<Config>,
                 {.grid = {p.rows},
                  .block = {threads},
                  .shared_bytes = shared,
                  .max_threads = Config::max_threads},
                 s, p, row_layout_of(p.width, warps));
  }
  if (p.partial != nullptr) {
    const int64_t blocks = ceil_div(p.width, Config::vector::length * warps);
    host::launch(
        norm_backward_long_sums<Config>,
        {.grid = {blocks, p.partial_rows}, .block = {threads}, .max_threads = Config::max_threads},
        s, p);
  }
}

// Launches what Kind and the types have of their own for such rows, if they have something.
template <class Kind, class T, class R, int Run>
bool launch_own_backward(const norm_backward_params& p, host::stream s) {
  constexpr norm_kernel_set kHas = kKernelSet<Kind, T, R>.of_run(Run);
  using config = norm_backward_config<Kind, T, Run, R>;
  switch (p.path) {
    case norm_backward_path::few:
      if constexpr (kHas.few) launch_backward_few<config>(p, s);
      return kHas.few;
    case norm_backward_path::narrow:
      if constexpr (kHas.narrow) {
        launch_backward_narrow<norm_backward_narrow_config<Kind, T, Run>>(p, s);
      }
      return kHas.narrow;
    case norm_backward_path::rows:
      if constexpr (kHas.pipelined && arch::kHasMbarriers) {
        if (takes_pipelined<config>(p.width)) {
          launch_backward_pipelined<config>(p, s);
          return true;
        }
      }
      if constexpr (kHas.medium) {
        if (is_medium(p)) {
          launch_backward_medium<config>(p, s);
          return true;
        }
      }
      if constexpr (kHas.barrier) launch_backward_barrier<config>(p, s);
      return kHas.barrier;
    case norm_backward_path::long_rows:
      if constexpr (kHas.long_rows) launch_backward_long<config>(p, s);
      return kHas.long_rows;
  }
  return false;
}

template <class Kind>
void launch_norm_backward(const norm_backward_params& p, host::stream s) {
  const bool aligned = is_aligned(p), one_type = p.residual_type == p.type;
  const bool launched = with_element(p.type, [&]<class T>() {
    constexpr int kRun = run_of<T>(true);
    if (!one_type) return aligned && launch_own_backward<Kind, T, float, kRun>(p, s);
    return aligned ? launch_own_backward<Kind, T, T, kRun>(p, s)
                   : launch_own_backward<Kind, T, T, 1>(p, s);
  });
  if (!launched) launch_any_norm_backward(p, s);
  if (p.partial != nullptr) launch_norm_reduce(p, s);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
