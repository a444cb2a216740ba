// The kernel that the mutants change.
#include "cross_entropy.h"

#include "kernels/cross_entropy/cross_entropy_rows.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::cross_entropy_kernels;

namespace {

template <int Vectors>
void launch_rows(const cross_entropy_forward_params& p) {
  using config = cross_entropy_rows_config<bf16, Vectors, 16, 1>;
  const int64_t warps = (p.width + config::warp_columns - 1) / config::warp_columns;
  kittens::host::launch(cross_entropy_rows<config>, {{p.rows}, {warps * kWarp}, sizeof(group_sums)},
                        nullptr, p);
}

template <class T>
void launch_clusters(const cross_entropy_forward_params& p, int64_t blocks) {
  using config = cross_entropy_rows_config<T, 4, 16, 8>;
  const int64_t columns = blocks * config::warp_columns;
  const int64_t warps = (p.width + columns - 1) / columns;
  kittens::host::launch(cross_entropy_rows<config>,
                        {{blocks, p.rows}, {warps * kWarp}, sizeof(cluster_sums<config>), blocks},
                        nullptr, p);
}

}  // namespace

void run_forward(forward_form form, const cross_entropy_forward_params& p) {
  switch (form) {
    case forward_form::rows: return launch_rows<8>(p);
    case forward_form::cluster: return launch_clusters<bf16>(p, 2);
    case forward_form::cluster_of_floats: return launch_clusters<float>(p, 8);
    default: return launch_rows<4>(p);
  }
}
