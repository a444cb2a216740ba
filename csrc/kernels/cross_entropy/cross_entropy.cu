// cross_entropy on every architecture: picks the configuration, launches, and enters the launchers
// in the table.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy_backward.cuh"
#include "kernels/cross_entropy/cross_entropy_launch.cuh"
#include "kernels/cross_entropy/cross_entropy_loss.cuh"
#include "kernels/cross_entropy/cross_entropy_reduce.cuh"
#include "kernels/cross_entropy/cross_entropy_two_pass.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::ceil_div;
using kittens::host::launch_programmatic;
using kittens::host::multiprocessors;
using kittens::host::stream;

void launch_count(const cross_entropy_count_params& p, stream s) {
  using config = cross_entropy_count_config;
  launch_programmatic(cross_entropy_count<config>,
                      {{kCrossEntropyParts}, {config::threads}, config::shared_bytes}, s, p);
}

template <class Config>
void launch_rows(const cross_entropy_forward_params& p, stream s) {
  const int64_t warps = ceil_div(p.width, Config::warp_columns);
  launch_programmatic(cross_entropy_rows<Config>,
                      {.grid = {p.rows},
                       .block = {warps * kWarp},
                       .shared_bytes = sizeof(group_sums),
                       .max_threads = Config::max_threads},
                      s, p);
}

template <class Config>
void launch_two_pass(const cross_entropy_forward_params& p, int64_t max_warps, stream s) {
  const int64_t warps = std::min(ceil_div(p.width, Config::warp_columns), max_warps);
  launch_programmatic(cross_entropy_two_pass<Config>,
                      {.grid = {p.rows},
                       .block = {warps * kWarp},
                       .shared_bytes = sizeof(group_sums),
                       .max_threads = Config::max_threads},
                      s, p);
}

template <class T, size_t I>
void launch_form(const cross_entropy_forward_params& p, stream s) {
  constexpr forward_form form = kGenericForms[I];
  if constexpr (form.kernel == forward_kernel::rows) {
    using config = rows_config<T, kGenericForms, I>;
    static_assert(config::adds_up || form.condition == when::no_total);
    launch_rows<config>(p, s);
  } else if constexpr (form.kernel == forward_kernel::loss) {
    using config = cross_entropy_loss_config<T>;
    launch_programmatic(cross_entropy_loss<config>,
                        {{p.rows}, {config::threads}, sizeof(group_sums)}, s, p);
  } else {
    static_assert(form.kernel == forward_kernel::two_pass);
    launch_two_pass<cross_entropy_two_pass_config<T>>(p, form.warps, s);
  }
}

void launch_total(const cross_entropy_total_params& p, stream s) {
  using config = cross_entropy_total_config;
  launch_programmatic(cross_entropy_total<config>, {{1}, {config::threads}, config::shared_bytes},
                      s, p);
}

void launch_backward(const cross_entropy_backward_params& p, stream s) {
  with_type(p.type, [&]<class T>(T) {
    using config = cross_entropy_backward_config<T>;
    constexpr int64_t kWarps = config::threads / kWarp, kBlocksPerMultiprocessor = 16;
    const int64_t columns = config::slice_vectors * vector16<T>::kLength;
    const int64_t slices = ceil_div(p.width, columns);
    const int64_t wanted = kBlocksPerMultiprocessor * multiprocessors();
    const int64_t blocks = std::min(ceil_div(p.rows, kWarps), ceil_div(wanted, slices));
    launch_programmatic(cross_entropy_backward<config>, {{blocks, slices}, {config::threads}}, s,
                        p);
  });
}

}  // namespace

void launch_generic(const cross_entropy_forward_params& p, stream s) {
  with_type(p.type, [&]<class T>(T) {
    with_form<T, kGenericForms>(p, multiprocessors(), [&]<size_t I>() { launch_form<T, I>(p, s); });
  });
}

KITTENS_LAUNCHER(kCrossEntropyCount, launch_count);
KITTENS_LAUNCHER(kCrossEntropyForward, launch_generic);
KITTENS_LAUNCHER(kCrossEntropyTotal, launch_total);
KITTENS_LAUNCHER(kCrossEntropyBackward, launch_backward);

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
