// How the norms are launched: the configuration follows from kind, dtypes, width and alignment.
// One .cu file for each kind enters its launchers, so that they compile side by side.
#pragma once

#include <algorithm>

#include "kernels/norm/norm.h"
#include "kernels/norm/norm_backward.cuh"
#include "kernels/norm/norm_backward_few.cuh"
#include "kernels/norm/norm_backward_narrow.cuh"
#include "kernels/norm/norm_backward_pipelined.cuh"
#include "kernels/norm/norm_forward.cuh"
#include "kernels/norm/norm_forward_narrow.cuh"
#include "kernels/norm/norm_reduce.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline row_layout row_layout_of(int64_t width, int64_t warps) {
  return {int(warps), 1.0f / float(width)};
}

// Calls f.operator()<T, R, Run>(): as with_elements, and R the residual's element type, void for a
// kind that adds none.
template <class Kind, class F>
void with_norm_elements(dtype type, dtype residual_type, bool aligned, F f) {
  with_elements(type, aligned, [&]<class T, int Run>() {
    if constexpr (!Kind::adds) {
      f.template operator()<T, void, Run>();
    } else if (residual_type == type) {
      f.template operator()<T, T, Run>();
    } else {
      f.template operator()<T, float, Run>();
    }
  });
}

// Whether the rows are such that Config holds them; if so, norm_forward is launched.
template <class Config>
bool launch_if_it_fits(const norm_forward_params& p, host::stream s) {
  if (p.width > Config::max_width) return false;
  const int64_t warps = ceil_div(p.width, Config::vector::length);
  const int64_t rows = warps == 1 ? Config::rows : 1;  // of a block
  host::launch_programmatic(norm_forward<Config>,
                            {.grid = {ceil_div(p.rows, rows)},
                             .block = {rows * warps * kWarp},
                             .shared_bytes = sizeof(typename Config::group::shared),
                             .max_threads = Config::max_threads},
                            s, p, row_layout_of(p.width, warps));
  return true;
}

// What norm_forward_config leaves open when kind, types and alignment are known.
template <int Elements, int Warps, int Registers, bool Early = false, int Rows = 1>
struct norm_form {};

// The same of the form that was fastest for such rows: benchmarks/layer_norm.md, rms_norm.md and
// add_norm.md. How many rows there are decides when the weights come, but no bits.
template <class Kind, class T, class R, class W, int Run>
bool launch_norm_form(const norm_forward_params& p, host::stream s) {
  const auto launch = [&]<int E, int Warps, int Registers, bool Early, int Rows>(
                          norm_form<E, Warps, Registers, Early, Rows>) {
    using config = norm_forward_config<Kind, T, R, W, Run, E, Warps, Registers, Early, Rows>;
    return launch_if_it_fits<config>(p, s);
  };
  constexpr bool kEarly = std::is_same_v<W, T>;  // float beside 16 bits takes too many registers
  const int64_t width = p.width;
  if constexpr (Run == 1) {
    constexpr int kRegisters = Kind::adds || std::is_void_v<W> ? 128 : 80;
    constexpr int kElements = Kind::adds && sizeof(T) == 4 ? 16 : 32;  // of 32 floats, ptxas spills
    return launch(norm_form<kElements, 256 / kElements, kRegisters>{});
  } else if constexpr (Kind::adds) {
    // Dropout's generator beside two rows takes more registers where they are floats. Long rows
    // with it: 149 µs at 16384 × 4096 with 16 elements a lane, 138 with 32 (H200, bf16).
    constexpr bool kLarge = sizeof(R) == 4;
    constexpr int kRegisters = kLarge ? 96 : 64;
    constexpr int kRegistersOfLong = kLarge ? 128 : 80;
    const bool sixteen = p.dropout.seed == nullptr || width <= 2048;
    return (sixteen && launch(norm_form<16, 8, kRegisters, kEarly>{})) ||
           launch(norm_form<32, 8, kRegistersOfLong>{}) || launch(norm_form<32, 16, 128>{});
  } else if constexpr (sizeof(T) == 4) {
    if constexpr (Kind::centred) {
      return (width <= 2048 && launch(norm_form<16, 8, 64, kEarly>{})) ||
             launch(norm_form<16, 32, 64>{});
    } else {
      return launch(norm_form<16, 8, 64, kEarly>{}) || launch(norm_form<32, 16, 64>{});
    }
  } else if constexpr (Kind::centred) {
    if (width <= 512) return launch(norm_form<16, 1, kEarly ? 48 : 64, kEarly, 4>{});
    if (width > 768 && width <= 1024) return launch(norm_form<32, 2, 80, kEarly>{});
    if (launch(norm_form<24, 2, 64, kEarly>{})) return true;
    const bool early = kEarly && (width < 2048 || p.rows <= 2 * host::multiprocessors());
    return (early && launch(norm_form<32, 8, 80, kEarly>{})) || launch(norm_form<32, 8, 64>{}) ||
           launch(norm_form<32, 16, 64>{});
  } else {
    const bool sixteen = width <= 512 || (width >= 1024 && width <= 2048);
    return (sixteen && launch(norm_form<16, 8, kEarly ? 40 : 48, kEarly, 4>{})) ||
           launch(norm_form<32, 8, 64, kEarly>{}) || launch(norm_form<32, 16, 64>{});
  }
}

// The same for whatever is given of weight and bias, as long as the types agree.
template <class Kind, class T, class R, int Run>
bool launch_norm_rows(const norm_forward_params& p, host::stream s) {
  const auto all_are = [&](dtype type) {
    return p.weight_type == type && (p.bias == nullptr || p.bias_type == type);
  };
  if (p.weight == nullptr) {
    return p.bias == nullptr && launch_norm_form<Kind, T, R, void, Run>(p, s);
  }
  if (all_are(p.type)) return launch_norm_form<Kind, T, R, T, Run>(p, s);
  if constexpr (sizeof(T) == 2 && Run > 1) {
    if (all_are(dtype::float32)) return launch_norm_form<Kind, T, R, float, Run>(p, s);
  }
  return false;
}

template <class Kind>
void launch_norm_forward(const norm_forward_params& p, host::stream s) {
  const int64_t size = bytes_of(p.type), residual_size = bytes_of(p.residual_type);
  const bool aligned =
      in_runs_of_16_bytes({p.x, p.residual, p.weight, p.bias, p.y, p.sum},
                          {p.width * size, p.x_rows.outer * size, p.x_rows.inner * size,
                           p.residual_stride * residual_size});
  with_norm_elements<Kind>(p.type, p.residual_type, aligned, [&]<class T, class R, int Run>() {
    if (p.width <= kNormNarrowWidth) {
      using narrow = norm_forward_narrow_config<Kind, T, R, Run>;
      const auto shape = norm_narrow_shape::of(p.width, narrow::place::elements);
      return host::launch_programmatic(
          norm_forward_narrow<narrow>,
          {{ceil_div(p.rows, shape.rows_of(narrow::threads))}, {narrow::threads}}, s, p,
          narrow_layout::of(p.width, shape));
    }
    if (launch_norm_rows<Kind, T, R, Run>(p, s)) return;
    using wide = norm_forward_config<Kind, T, R, T, Run, 16, 16, 128>;
    const int64_t warps =
        std::min<int64_t>(wide::max_threads / kWarp, ceil_div(p.width, wide::vector::length));
    host::launch_programmatic(norm_forward_wide<wide>,
                              {.grid = {p.rows},
                               .block = {warps * kWarp},
                               .shared_bytes = sizeof(group_sum<2>::shared),
                               .max_threads = wide::max_threads},
                              s, p, row_layout_of(p.width, warps));
  });
}

template <class Config>
void launch_norm_backward_few(const norm_backward_params& p, host::stream s) {
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

// Longer rows than this are worth their second reading from shared memory, as long as the slots of
// all blocks of a multiprocessor leave room for the weights in its first-level cache: of 256
// KB, 64.
inline constexpr int64_t kPipelinedAbove = 2048, kPipelinedBytes = 192 * 1024;

template <class Config>
void launch_norm_backward_fused(const norm_backward_params& p, host::stream s) {
  const auto shape = norm_backward_shape::of(p.width);
  const auto layout = row_layout_of(p.width, shape.warps);
  if constexpr (Config::layout::run > 1 && arch::kHasMbarriers) {
    const int64_t shared = sizeof(typename pipelined_sum<Config::sums>::shared) +
                           shape.warps * kSlots * sizeof(pipelined_slot<Config>);
    const bool fits = shape.blocks_per_multiprocessor() * shared <= kPipelinedBytes;
    if (p.width > kPipelinedAbove && fits) {
      return host::launch(norm_backward_pipelined<Config>,
                          {.grid = {p.partial_rows},
                           .block = {shape.warps * kWarp},
                           .shared_bytes = shared,
                           .max_threads = Config::max_threads},
                          s, p, layout);
    }
  }
  const int64_t warps = shape.groups * shape.warps, exchanged = shape.groups > 1 ? warps : 0;
  const int64_t shared = shape.groups * sizeof(typename group_sum<Config::sums>::shared) +
                         warps * Config::stream_bytes + exchanged * sizeof(group_sums<Config>);
  host::launch(norm_backward<Config>,
               {.grid = {p.partial_rows},
                .block = {warps * kWarp},
                .shared_bytes = shared,
                .max_threads = Config::max_threads},
               s, p, layout);
}

template <class Config>
void launch_norm_backward_wide(const norm_backward_params& p, host::stream s) {
  const int64_t warps =
      std::min<int64_t>(Config::max_threads / kWarp, ceil_div(p.width, Config::vector::length));
  const int64_t threads = warps * kWarp;
  if (p.dx != nullptr || p.dresidual != nullptr) {
    const int64_t shared = sizeof(typename group_sum<Config::sums>::shared);
    host::launch(norm_backward_dx_wide<Config>,
                 {.grid = {p.rows},
                  .block = {threads},
                  .shared_bytes = shared,
                  .max_threads = Config::max_threads},
                 s, p, row_layout_of(p.width, warps));
  }
  if (p.partial != nullptr) {
    const int64_t blocks = ceil_div(p.width, Config::vector::length * warps);
    host::launch(
        norm_backward_sums_wide<Config>,
        {.grid = {blocks, p.partial_rows}, .block = {threads}, .max_threads = Config::max_threads},
        s, p);
  }
}

template <class Kind>
void launch_norm_backward(const norm_backward_params& p, host::stream s) {
  const int64_t size = bytes_of(p.type), residual_size = bytes_of(p.residual_type);
  const int64_t x_size = Kind::adds ? residual_size : size;
  const bool aligned = in_runs_of_16_bytes(
      {p.x, p.dy, p.dsum, p.dx, p.dresidual, p.weight},
      {p.width * size, p.x_rows.outer * x_size, p.x_rows.inner * x_size, p.dy_rows.outer * size,
       p.dy_rows.inner * size, p.dsum_stride * residual_size});
  with_norm_elements<Kind>(p.type, p.residual_type, aligned, [&]<class T, class R, int Run>() {
    using config = norm_backward_config<Kind, T, R, Run>;
    using narrow = norm_backward_narrow_config<Kind, T, R, Run>;
    if (p.partial_rows == 0) return launch_norm_backward_few<config>(p, s);
    if (p.width <= kNormNarrowWidth) {
      const int64_t shared = p.partial != nullptr ? 2 * sizeof(narrow_sums) : 0;
      host::launch(norm_backward_narrow<narrow>, {{p.partial_rows}, {narrow::threads}, shared}, s,
                   p, narrow_layout::of(p.width, norm_narrow_shape::of(p.width)));
      return;
    }
    if constexpr (config::fused) {
      if (p.width <= kNormFusedWidth) return launch_norm_backward_fused<config>(p, s);
    }
    launch_norm_backward_wide<config>(p, s);
  });
  if (p.partial != nullptr) {
    using reduce = norm_reduce_config;
    host::launch_programmatic(norm_backward_reduce<reduce>,
                              {{ceil_div(p.width, kWarp), Kind::centred ? 2 : 1},
                               {reduce::warps * kWarp},
                               reduce::warps * kWarp * sizeof(float)},
                              s, p);
  }
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
