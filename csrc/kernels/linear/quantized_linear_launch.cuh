// quantized_linear: how its kernel is launched.
#pragma once

#include "kernels/linear/linear_pass_launch.cuh"
#include "kernels/linear/quantized_linear.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class T, bool Gated, class Weight, int RowHalves, int SharedKb>
void launch_quantized_halves(const linear_params& p, host::stream s) {
  using config = quantized_linear_config<T, Gated, Weight, RowHalves, SharedKb>;
  quantized_linear_arguments a{};
  if (Weight::kGrouped) {
    a.weight_groups = linear_groups::of(p.problem.in_features, p.problem.group);
  }
  with_form_for_weight<config>(p.problem, [&]<class Form> {
    launch_copying<Form, quantized_linear_shared<Form>>(quantized_linear<Form>, a, p, s);
  });
}
template <class T, class Weight, int SharedKb>
void launch_quantized_weight(const linear_params& p, host::stream s) {
  const auto with_rows = [&]<bool Gated>(std::bool_constant<Gated>) {
    if (p.problem.rows <= kRows / 2) {
      return launch_quantized_halves<T, Gated, Weight, 1, SharedKb>(p, s);
    }
    launch_quantized_halves<T, Gated, Weight, 2, SharedKb>(p, s);
  };
  if (p.problem.gated) return with_rows(std::true_type{});
  with_rows(std::false_type{});
}

// Whether groups are whole steps, and a row's scales and zeros whole words, by which they are
// copied.
template <class T>
bool scales_sums(const linear_params& p) {
  constexpr int kStep = 4 * linear_int4<T, true>::lane_cols;
  if (p.problem.group % kStep != 0) return false;
  const int64_t groups = p.problem.in_features / p.problem.group;
  const auto is_whole = [](const void* data, int64_t bytes) {
    return data == nullptr || (reinterpret_cast<uintptr_t>(data) % 4 == 0 && bytes % 4 == 0);
  };
  return is_whole(p.tensors.weight_scale, groups * int64_t{sizeof(T)}) &&
         is_whole(p.tensors.weight_zero, groups);
}

template <class T, int SharedKb>
void launch_int4_type(const linear_params& p, host::stream s) {
  if (scales_sums<T>(p)) {
    return launch_quantized_weight<T, linear_int4<T, true>, SharedKb>(p, s);
  }
  launch_quantized_weight<T, linear_int4<T, false>, SharedKb>(p, s);
}

// At least one element of y, and of the sum that it is.
template <class T>
void launch_quantized_type(const linear_params& p, host::stream s) {
  if (p.problem.weight == linear_weight::e4m3) {
    return launch_quantized_weight<T, linear_e4m3<T>, kLinearSharedKb>(p, s);
  }
  launch_int4_type<T, kLinearSharedKb>(p, s);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
