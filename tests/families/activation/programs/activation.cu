// The kernels that the mutants change.
#include "activation.h"

#include "kernels/activation/elementwise_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::activation_kernels;

namespace {

template <class T, bool Aligned, class F>
void run_gated(const activation_tensors& t) {
  const int64_t s = t.stride;
  launch_slices<gated_forward<F>, T, Aligned>({{t.gate, t.up}, {s, s}, {t.y}, t.rows, t.width},
                                              nullptr);
  launch_slices<gated_backward<F>, T, Aligned>(
      {{t.dy, t.gate, t.up}, {s, s, s}, {t.dgate, t.dup}, t.rows, t.width}, nullptr);
}

template <class T, bool Aligned, class F>
void run_plain(const activation_tensors& t) {
  const int64_t s = t.stride;
  launch_slices<plain_forward<F>, T, Aligned>({{t.gate}, {s}, {t.y}, t.rows, t.width}, nullptr);
  launch_slices<plain_backward<F>, T, Aligned>({{t.dy, t.gate}, {s, s}, {t.dgate}, t.rows, t.width},
                                               nullptr);
}

}  // namespace

void run_activation(activation_form form, const activation_tensors& t) {
  switch (form) {
    case activation_form::silu_in_runs: return run_gated<bf16, true, silu<bf16>>(t);
    case activation_form::tanh_in_runs: return run_gated<float, true, gelu_tanh<float>>(t);
    case activation_form::erf_in_runs: return run_plain<bf16, true, gelu_erf<bf16>>(t);
    case activation_form::silu_unaligned: return run_gated<bf16, false, silu<bf16>>(t);
    case activation_form::erf_unaligned: return run_plain<float, false, gelu_erf<float>>(t);
  }
}
