// cross_entropy: picks the configuration, launches, and enters the launchers in the table.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy_backward.cuh"
#include "kernels/cross_entropy/cross_entropy_configs.cuh"
#include "kernels/cross_entropy/cross_entropy_loss.cuh"
#include "kernels/cross_entropy/cross_entropy_reduce.cuh"
#include "kernels/cross_entropy/cross_entropy_rows.cuh"
#include "kernels/cross_entropy/cross_entropy_stream.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::ceil_div;
using kittens::host::launch;
using kittens::host::launch_programmatic;
using kittens::host::multiprocessors;
using kittens::host::stream;

// The kernels find out themselves which of a row's accesses are aligned.
template <class F>
void with_type(dtype type, F f) {
  with_elements(type, /*aligned=*/true, [&]<class T, int>() { f(T{}); });
}

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

// Blocks of a row: as many as there are multiprocessors for, where less would have more than the
// columns of four warps each.
template <class Config>
int64_t blocks_of_row(const cross_entropy_forward_params& p, int processors) {
  constexpr int64_t kLeastColumns = 4 * Config::warp_columns;
  int64_t blocks = 1;
  while (blocks < Config::max_blocks && 2 * blocks * p.rows <= processors &&
         blocks * kLeastColumns < p.width) {
    blocks *= 2;
  }
  return blocks;
}

template <class Config>
void launch_clusters(const cross_entropy_forward_params& p, int64_t blocks, stream s) {
  const int64_t warps = ceil_div(p.width, blocks * Config::warp_columns);
  launch_programmatic(cross_entropy_rows<Config>,
                      {.grid = {blocks, p.rows},
                       .block = {warps * kWarp},
                       .shared_bytes = sizeof(cluster_sums<Config>),
                       .cluster = blocks,
                       .max_threads = Config::max_threads},
                      s, p);
}

bool holds(when condition, const cross_entropy_forward_params& p, int processors) {
  const bool few = few_cross_entropy_rows(p.rows, p.width, processors);
  switch (condition) {
    case when::few_rows: return few;
    case when::many_loss: return !few && p.gradient == nullptr;
    case when::no_total: return p.total == nullptr;
    case when::always: break;
  }
  return true;
}

template <class T, size_t I>
using rows_config = cross_entropy_rows_config<T, kForwardForms[I].vectors, kForwardForms[I].warps,
                                              kForwardForms[I].blocks>;

template <class T, size_t I>
bool takes(const cross_entropy_forward_params& p, int processors) {
  constexpr forward_form form = kForwardForms[I];
  constexpr int64_t kLength = vector16<T>::kLength;
  if (p.width <= form.above * kLength || p.width > form.to * kLength) return false;
  if constexpr (form.blocks > 1) {
    using config = rows_config<T, I>;
    if (p.width > blocks_of_row<config>(p, processors) * config::block_columns) return false;
  }
  return holds(form.condition, p, processors);
}

// By form I of the table, or the first one behind it that takes the rows.
template <class T, size_t I = 0>
void launch_form(const cross_entropy_forward_params& p, int processors, stream s) {
  constexpr forward_form form = kForwardForms[I];
  if constexpr (I + 1 < kForwardForms.size()) {
    if (!takes<T, I>(p, processors)) return launch_form<T, I + 1>(p, processors, s);
  }
  if constexpr (form.blocks > 1) {
    using config = rows_config<T, I>;
    launch_clusters<config>(p, blocks_of_row<config>(p, processors), s);
  } else if constexpr (form.kernel == forward_kernel::rows) {
    using config = rows_config<T, I>;
    static_assert(config::adds_up || form.condition == when::no_total);
    launch_rows<config>(p, s);
  } else if constexpr (form.kernel == forward_kernel::loss) {
    using config = cross_entropy_loss_config<T>;
    launch_programmatic(cross_entropy_loss<config>,
                        {{p.rows}, {config::threads}, sizeof(group_sums)}, s, p);
  } else {
    using config = cross_entropy_stream_config<T, form.warps, form.vectors, form.slots>;
    using shared = cross_entropy_stream_shared<config>;
    static_assert(sizeof(shared) <= kittens::host::kMaxSharedBytes);
    launch(cross_entropy_stream<config>,
           {{std::min<int64_t>(p.rows, processors)}, {config::threads}, sizeof(shared)}, s, p);
  }
}

void launch_forward(const cross_entropy_forward_params& p, stream s) {
  with_type(p.type, [&]<class T>(T) { launch_form<T>(p, multiprocessors(), s); });
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

KITTENS_LAUNCHER(kCrossEntropyCount, launch_count);
KITTENS_LAUNCHER(kCrossEntropyForward, launch_forward);
KITTENS_LAUNCHER(kCrossEntropyTotal, launch_total);
KITTENS_LAUNCHER(kCrossEntropyBackward, launch_backward);

}  // namespace
}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
