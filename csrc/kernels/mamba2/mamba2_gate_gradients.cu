// mamba2: picks the configuration of the gates' gradients, and enters the launcher in the table.
#include "kernels/mamba2/mamba2.h"
#include "kernels/mamba2/mamba2_gate_gradients_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {
namespace {

template <class T>
void launch_with(const mamba2_gate_gradients_params& p, kittens::host::stream s) {
  kittens::host::dispatch<1, 2>("parts of a weight's gradient", p.parts, [&]<int Parts> {
    launch_gate_gradients<mamba2_gate_gradients_config<T, Parts>>(p, s);
  });
}

void launch_gate_gradients_of(const mamba2_gate_gradients_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_with<half>(p, s);
    case dtype::bfloat16: return launch_with<bf16>(p, s);
    case dtype::float32: return launch_with<float>(p, s);
  }
}

KITTENS_LAUNCHER(kMamba2GateGradients, launch_gate_gradients_of);

}  // namespace
}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
