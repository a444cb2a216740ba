// The kernels that the mutants change: those beside the forward one.
#include "cross_entropy.h"

#include "kernels/cross_entropy/cross_entropy_backward.cuh"
#include "kernels/cross_entropy/cross_entropy_reduce.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::cross_entropy_kernels;
using kittens::host::launch;

// Few blocks, so that each has several rows.
void run_backward(const cross_entropy_backward_params& p) {
  using config = cross_entropy_backward_config<bf16>;
  const int64_t columns = config::slice_vectors * vector16<bf16>::kLength;
  launch(cross_entropy_backward<config>,
         {{2, (p.width + columns - 1) / columns}, {config::threads}}, nullptr, p);
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
