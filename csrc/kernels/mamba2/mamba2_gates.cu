// mamba2: launches the gates, and enters the launcher in the table.
#include "kernels/mamba2/mamba2_gates.cuh"

#include "kernels/mamba2/mamba2.h"
#include "kittens/host/dispatch.h"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {
namespace {

template <class T>
void launch_with(const mamba2_gates_params& p, kittens::host::stream s) {
  const int64_t blocks = (p.batch * p.length * p.heads + kGateThreads - 1) / kGateThreads;
  kittens::host::launch(mamba2_gates<T>, {{blocks}, {kGateThreads}}, s, p);
}

void launch_gates(const mamba2_gates_params& p, kittens::host::stream s) {
  switch (p.type) {
    case dtype::float16: return launch_with<half>(p, s);
    case dtype::bfloat16: return launch_with<bf16>(p, s);
    case dtype::float32: return launch_with<float>(p, s);
  }
}

KITTENS_LAUNCHER(kMamba2Gates, launch_gates);

}  // namespace
}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
