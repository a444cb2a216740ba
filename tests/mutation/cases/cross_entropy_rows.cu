// The kernel that the mutants change.
#include "cross_entropy.h"

#include "kernels/cross_entropy/cross_entropy_rows.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;

void run_forward(forward_form form, const cross_entropy_forward_params& p) {
  using config = cross_entropy_rows_config<bf16>;
  const int64_t groups = form == forward_form::rows ? 3 : 1;
  const int64_t warps = (p.width + config::warp_columns - 1) / config::warp_columns;
  kittens::host::launch(cross_entropy_rows<config>,
                        {{(p.rows + groups - 1) / groups},
                         {groups * warps * kWarp},
                         groups * int64_t(sizeof(group_sums))},
                        nullptr, p, int(warps));
}
