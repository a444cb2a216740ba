// Launching an element-wise kernel: the element type, the width of accesses, and the grid.
#pragma once

#include <algorithm>

#include "kernels/activation/elementwise.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::activation_kernels::inline KITTENS_TARGET {

template <class Function, class T, bool Aligned>
void launch_slices(operands_of<Function> p, host::stream s) {
  using config = elementwise_config<Function, T, Aligned>;
  using host::ceil_div;
  const int64_t rows = std::min<int64_t>(p.rows, config::group_rows);
  p.slices = config::end_slices + ceil_div(rows * p.width, config::vector::length);
  p.rows_per_slice = (int64_t{config::vector::length} << 32) / p.width;
  const int64_t groups = ceil_div(p.rows, config::group_rows);
  const host::launch_config shape = {{ceil_div(groups * p.slices, config::warps)},
                                     {config::threads}};
  if constexpr (Function::backward) {
    host::launch_programmatic(activation_backward<config>, shape, s, p);
  } else {
    host::launch_programmatic(activation_forward<config>, shape, s, p);
  }
}

// A single row's columns from `first` on.
template <class T, class Operands>
Operands columns_from(Operands p, int64_t first) {
  for (const void*& in : p.in) in = static_cast<const T*>(in) + first;
  for (void*& out : p.out) out = out == nullptr ? nullptr : static_cast<T*>(out) + first;
  p.width -= first;
  return p;
}

// Whether rows start at multiples of 16 bytes and have a multiple of 16, but for what a single row
// has behind the last of them.
template <class Operands>
bool is_aligned(const Operands& p, int64_t size) {
  bool aligned = p.rows == 1 || p.width * size % 16 == 0;
  for (const void* in : p.in) aligned &= in_runs_of_16_bytes({in});
  for (const int64_t stride : p.stride) aligned &= p.rows == 1 || stride * size % 16 == 0;
  return aligned;
}

// Launches Form<F<T>>, T the element type: `launch_elementwise<gated_forward, silu>(…)`.
//
// A single row, which is what contiguous tensors are, has any number of elements: those behind the
// last whole run have a launch of their own.
template <template <class> class Form, template <class> class F>
void launch_elementwise(operands_of<Form<F<float>>> p, dtype type, host::stream s) {
  with_elements(type, is_aligned(p, bytes_of(type)), [&]<class T, int Run>() {
    constexpr bool kAligned = Run > 1;
    const int64_t whole = p.width / Run * Run;
    if (whole < p.width) launch_slices<Form<F<T>>, T, false>(columns_from<T>(p, whole), s);
    p.width = whole;
    if (whole > 0) launch_slices<Form<F<T>>, T, kAligned>(p, s);
  });
}

inline elementwise_operands<2, 1> operands(const gated_forward_params& p) {
  return {{p.gate, p.up}, {p.gate_stride, p.up_stride}, {p.y}, p.rows, p.width};
}
inline elementwise_operands<3, 2> operands(const gated_backward_params& p) {
  return {{p.dy, p.gate, p.up},
          {p.dy_stride, p.gate_stride, p.up_stride},
          {p.dgate, p.dup},
          p.rows,
          p.width};
}
inline elementwise_operands<1, 1> operands(const gelu_forward_params& p) {
  return {{p.x}, {p.x_stride}, {p.y}, p.rows, p.width};
}
inline elementwise_operands<2, 1> operands(const gelu_backward_params& p) {
  return {{p.dy, p.x}, {p.dy_stride, p.x_stride}, {p.dx}, p.rows, p.width};
}

}  // namespace thunderkittens::activation_kernels::inline KITTENS_TARGET
