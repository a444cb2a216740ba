// mamba2: launches the gates, and enters the launcher in the table.
#include "kernels/mamba2/mamba2.h"
#include "kernels/mamba2/mamba2_gates_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {
namespace {

void launch_gates(const mamba2_gates_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_gates_of<half>(p, s);
    case dtype::bfloat16: return launch_gates_of<bf16>(p, s);
    case dtype::float32: return launch_gates_of<float>(p, s);
  }
}

KITTENS_LAUNCHER(kMamba2Gates, launch_gates);

}  // namespace
}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
