// The kernels that the mutants change.
#include "activation.h"

#include "kernels/activation/elementwise.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using kittens::host::launch;

namespace {

template <class Config>
host::launch_config shape_of(const activation_tensors& t, int64_t slices) {
  return {{(t.rows * slices + Config::warps - 1) / Config::warps}, {Config::threads}};
}

template <class T, int Run, class F>
void run_gated(const activation_tensors& t) {
  using forward = elementwise_config<gated_forward<F>, T, Run>;
  using backward = elementwise_config<gated_backward<F>, T, Run>;
  const auto slices = [&](int64_t length) { return (t.width + length - 1) / length; };
  const int64_t f = slices(forward::vector::length), b = slices(backward::vector::length);
  launch(activation_forward<forward>, shape_of<forward>(t, f), nullptr,
         {{t.gate, t.up}, {t.stride, t.stride}, {t.y}, t.rows, t.width, f});
  launch(
      activation_backward<backward>, shape_of<backward>(t, b), nullptr,
      {{t.dy, t.gate, t.up}, {t.stride, t.stride, t.stride}, {t.dgate, t.dup}, t.rows, t.width, b});
}

template <class T, int Run, class F>
void run_plain(const activation_tensors& t) {
  using forward = elementwise_config<plain_forward<F>, T, Run>;
  using backward = elementwise_config<plain_backward<F>, T, Run>;
  const auto slices = [&](int64_t length) { return (t.width + length - 1) / length; };
  const int64_t f = slices(forward::vector::length), b = slices(backward::vector::length);
  launch(activation_forward<forward>, shape_of<forward>(t, f), nullptr,
         {{t.gate}, {t.stride}, {t.y}, t.rows, t.width, f});
  launch(activation_backward<backward>, shape_of<backward>(t, b), nullptr,
         {{t.dy, t.gate}, {t.stride, t.stride}, {t.dgate}, t.rows, t.width, b});
}

}  // namespace

void run_activation(activation_form form, const activation_tensors& t) {
  switch (form) {
    case activation_form::silu_in_runs: return run_gated<bf16, 8, silu<bf16>>(t);
    case activation_form::tanh_in_runs: return run_gated<float, 4, gelu_tanh<float>>(t);
    case activation_form::erf_in_runs: return run_plain<bf16, 8, gelu_erf<bf16>>(t);
    case activation_form::erf_single_elements: return run_plain<float, 1, gelu_erf<float>>(t);
  }
}
