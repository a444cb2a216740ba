// The kernel that the mutants change: few blocks, so that each has several rows, and a small ring.
// Three with a total, so that the last one is not all but the first.
#include "cross_entropy.h"

#include "kernels/cross_entropy/cross_entropy_stream.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::cross_entropy_kernels;

namespace {

// A chunk of two warps: 128 vectors. Two chunks of a row stay.
template <class T>
void launch_stream(const cross_entropy_forward_params& p) {
  using config = cross_entropy_stream_config<T, 2, 2, 4>;
  kittens::host::launch(cross_entropy_stream<config>,
                        {{p.total != nullptr ? 3 : 2},
                         {config::threads},
                         sizeof(cross_entropy_stream_shared<config>)},
                        nullptr, p);
}

}  // namespace

void run_forward(forward_form form, const cross_entropy_forward_params& p) {
  return form == forward_form::chunks ? launch_stream<bf16>(p) : launch_stream<float>(p);
}
