// linear of 17 to 64 rows: picks the configuration, and enters the launcher in the table.
#include "kernels/linear/linear.h"

#include "kernels/linear/linear_rows_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {
namespace {

void launch_linear_rows_kernel(const linear_params& p, kittens::host::stream s) {
  if (p.problem.type == dtype::float16) return launch_rows_type<half>(p, s);
  launch_rows_type<bf16>(p, s);
}

KITTENS_LAUNCHER(kLinearRows, launch_linear_rows_kernel);

}  // namespace
}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
