// linear: what the launches of its forms share.
#pragma once

#include <array>
#include <span>

#include "kernels/linear/linear_pass.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/device.h"
#include "kittens/host/launch.cuh"
#include "kittens/host/launch_config.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class Config>
void set_arguments(linear_arguments& a, const linear_params& params) {
  const linear_problem& p = params.problem;
  a.tensors = params.tensors;
  a.rows = int(p.rows);
  a.steps = int(host::ceil_div(p.in_features, int64_t{Config::step}));
  a.in_features = int(p.in_features);
  a.out_features = int(p.out_features);
  a.groups = int(host::ceil_div(p.out_features, int64_t{kGroup}));
  a.norm_eps = float(p.norm_eps);
}

// Whether a launch may overlap the one in front of it: programmatically, in code since sm_90.
inline constexpr int kMajor = host::facts_of(host::architecture::KITTENS_TARGET).major;
inline constexpr bool kMayOverlap = kMajor >= 9 || host::device{.major = kMajor}.is_simulated();

// Calls f<Form>() with the form of a configuration for the call's weight.
template <class Config, class F>
void with_form_for_weight(const linear_problem& p, const F& f) {
  if constexpr (kMayOverlap) {
    if (p.weight_is_constant) return f.template operator()<of_constant_weight<Config>>();
  }
  f.template operator()<Config>();
}

// Bytes of a row of the weight, of which 16 are lane_cols elements, and from one to the next.
template <class Config>
int64_t weight_row_bytes(const linear_problem& p) {
  return p.in_features * int64_t{sizeof(uint4)} / Config::weight::lane_cols;
}
template <class Config>
int64_t weight_stride_bytes(const linear_problem& p) {
  return p.weight_stride * int64_t{Config::weight::kQuantized ? 1 : sizeof(typename Config::type)};
}

// What a launch is promised that the kernel in front does not write: the weight and what it is
// scaled by, or nothing.
template <class Config>
class constant_parts {
 public:
  explicit constant_parts(const linear_params& params) {
    if constexpr (!Config::weight_is_constant) return;
    const linear_problem& p = params.problem;
    const linear_tensors& t = params.tensors;
    const int64_t rows = p.out_features * Config::tiles_of_group;
    const int64_t groups = p.group > 0 ? rows * (p.in_features / p.group) : 0;
    add(t.weight, (rows - 1) * weight_stride_bytes<Config>(p) + weight_row_bytes<Config>(p));
    if (Config::weight::kRowScaled) add(t.weight_scale, rows * int64_t{sizeof(float)});
    if (Config::weight::kGrouped) {
      add(t.weight_scale, groups * int64_t{sizeof(typename Config::type)});
      add(t.weight_zero, groups);
    }
  }
  std::span<const host::memory_range> ranges() const { return {ranges_.data(), count_}; }

 private:
  void add(const void* data, int64_t bytes) {
    if (data != nullptr) ranges_[count_++] = {data, bytes};
  }

  std::array<host::memory_range, 3> ranges_{};
  size_t count_ = 0;
};

// Launches a kernel that copies by cp.async, of a form of linear_forms.cuh. `a`: what is its own.
template <class Config, class Shared, class Arguments>
void launch_copying(void (*kernel)(Arguments), Arguments a, const linear_params& p,
                    host::stream s) {
  constexpr bool kAlone = Config::form.blocks == 1;
  static_assert(sizeof(Shared) <= (kAlone ? size_t{1024} * Config::form.shared_kb
                                          : size_t{kLinearGenericSharedBytes}));
  static_assert(Config::form.shared_kb > 0 || host::fits_every_architecture(sizeof(Shared)),
                "a block's shared memory");
  set_arguments<Config>(a, p);
  a.x_stride = p.problem.x_stride;
  a.weight_stride = weight_stride_bytes<Config>(p.problem);
  a.weight_bytes = int(weight_row_bytes<Config>(p.problem));
  const constant_parts<Config> constant(p);
  host::launch_programmatic(kernel,
                            {.grid = {kAlone ? p.blocks : p.generic_blocks},
                             .block = {Config::warps * kWarp},
                             .shared_bytes = sizeof(Shared),
                             .constant = constant.ranges()},
                            s, a);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
