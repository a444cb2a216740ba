// The kernels that the mutants change: few blocks, so that each has several rows, and a small ring.
#include "cross_entropy.h"

#include "kernels/cross_entropy/cross_entropy_backward.cuh"
#include "kernels/cross_entropy/cross_entropy_loss.cuh"
#include "kernels/cross_entropy/cross_entropy_reduce.cuh"
#include "kernels/cross_entropy/cross_entropy_rows.cuh"
#include "kernels/cross_entropy/cross_entropy_stream.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using kittens::host::launch;

namespace {

constexpr int kBlocks = 2;

template <int Vectors>
void launch_rows(const cross_entropy_forward_params& p) {
  using config = cross_entropy_rows_config<bf16, Vectors>;
  const int64_t warps = (p.width + config::warp_columns - 1) / config::warp_columns;
  launch(cross_entropy_rows<config>, {{p.rows}, {warps * kWarp}, sizeof(group_sums)}, nullptr, p);
}

// Of two warps: 128 vectors a step.
void launch_loss(const cross_entropy_forward_params& p) {
  using config = cross_entropy_loss_config<float>;
  launch(cross_entropy_loss<config>, {{p.rows}, {2 * kWarp}, sizeof(group_sums)}, nullptr, p);
}

// A chunk of two warps: 128 vectors. Two chunks of a row stay.
template <class T>
void launch_stream(const cross_entropy_forward_params& p) {
  using config = cross_entropy_stream_config<T, 2, 2, 4>;
  launch(cross_entropy_stream<config>,
         {{kBlocks}, {config::threads}, sizeof(cross_entropy_stream_shared<config>)}, nullptr, p);
}

}  // namespace

void run_forward(forward_form form, const cross_entropy_forward_params& p) {
  switch (form) {
    case forward_form::rows_of_a_warp: return launch_rows<4>(p);
    case forward_form::rows: return launch_rows<8>(p);
    case forward_form::loss_of_floats: return launch_loss(p);
    case forward_form::stream: return launch_stream<bf16>(p);
    case forward_form::stream_of_floats: return launch_stream<float>(p);
  }
}

void run_backward(int64_t slices, const cross_entropy_backward_params& p) {
  using config = cross_entropy_backward_config<bf16>;
  launch(cross_entropy_backward<config>, {{kBlocks, slices}, {config::threads}}, nullptr, p);
}

void run_count(const cross_entropy_count_params& p) {
  using config = cross_entropy_count_config;
  launch(cross_entropy_count<config>,
         {{kCrossEntropyParts}, {config::threads}, config::shared_bytes}, nullptr, p);
}

void run_total(const cross_entropy_total_params& p) {
  using config = cross_entropy_total_config;
  launch(cross_entropy_total<config>, {{1}, {config::threads}, config::shared_bytes}, nullptr, p);
}
