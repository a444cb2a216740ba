// cross_entropy on Hopper: picks the configuration, launches, and enters the launcher in the table.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy_launch.cuh"
#include "kernels/cross_entropy/cross_entropy_stream.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::ceil_div;
using kittens::host::stream;

template <class Config>
void launch_clusters(const cross_entropy_forward_params& p, int processors, stream s) {
  const int64_t blocks = blocks_of_row<Config>(p, processors);
  const int64_t warps = ceil_div(p.width, blocks * Config::warp_columns);
  kittens::host::launch_programmatic(cross_entropy_rows<Config>,
                                     {.grid = {blocks, p.rows},
                                      .block = {warps * kWarp},
                                      .shared_bytes = sizeof(cluster_sums<Config>),
                                      .cluster = blocks,
                                      .max_threads = Config::max_threads},
                                     s, p);
}

template <class T, size_t I>
void launch_form(const cross_entropy_forward_params& p, int processors, stream s) {
  constexpr forward_form form = kHopperForms[I];
  if constexpr (form.in_cluster()) {
    launch_clusters<rows_config<T, kHopperForms, I>>(p, processors, s);
  } else if constexpr (form.kernel == forward_kernel::stream) {
    using config = cross_entropy_stream_config<T, form.warps, form.vectors, form.slots>;
    using shared = cross_entropy_stream_shared<config>;
    static_assert(sizeof(shared) <= kittens::host::kMaxSharedBytes);
    kittens::host::launch(
        cross_entropy_stream<config>,
        {{std::min<int64_t>(p.rows, processors)}, {config::threads}, sizeof(shared)}, s, p);
  } else {
    launch_generic(p, s);
  }
}

void launch_forward(const cross_entropy_forward_params& p, stream s) {
  const int processors = kittens::host::multiprocessors();
  with_type(p.type, [&]<class T>(T) {
    with_form<T, kHopperForms>(p, processors,
                               [&]<size_t I>() { launch_form<T, I>(p, processors, s); });
  });
}

KITTENS_LAUNCHER(kCrossEntropyForward, launch_forward);

}  // namespace
}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
