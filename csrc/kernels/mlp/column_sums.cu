// column_sums: picks the configuration, and enters the launcher in the table.
#include "kernels/mlp/column_sums_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {
namespace {

void launch_column_sums_kernels(const column_sums_params& p, kittens::host::stream s) {
  switch (p.problem.type) {
    case dtype::float32: return launch_column_sums<float>(p, s);
    case dtype::float16: return launch_column_sums<half>(p, s);
    case dtype::bfloat16: return launch_column_sums<bf16>(p, s);
  }
}

KITTENS_LAUNCHER(kColumnSums, launch_column_sums_kernels);

}  // namespace
}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
