// What ranks exchange in a step, on a stream of its own beside the computation's: each gets its
// part of a bucket's gradients of all others, as soon as the backward has made them, and adds them
// up; and the weights that the ranks have updated are gathered in the order in which the next
// forward needs them. Weights, gradients and what is received lie in the communicator's memory, so
// that copy engines bring them. A kernel of NCCL's that sums takes multiprocessors instead, and
// keeps them while it waits for the other ranks.
#pragma once

#include <memory>
#include <vector>

#include "memory.h"
#include "nccl.h"
#include "shards.h"

namespace gpt2 {

class exchange {
 public:
  // received: memory for the largest bucket.
  exchange(const device& d, const nccl& between, const shards& s, dtype type, void* received,
           queue& computation);

  // The bucket's gradients, which what was launched so far has made: of this rank's part the sum.
  void sum_gradients(size_t bucket, void* gradients);
  // What is launched from now on sees all sums that were asked for.
  void await_sums();
  // All weights.
  void gather_weights(void* weights);
  // What is launched from now on sees that bucket's weights.
  void await_weights(size_t bucket);
  // `count` numbers of each rank, to all: what is launched from now on sees them.
  void gather_numbers(float* numbers, int64_t count);
  // A number of the optimizer's state, of which each rank has its part, of all parameters at their
  // offsets: rank 0 has it then, all others nothing. Waits. What is in `memory` is lost.
  std::vector<float> whole_state(const float* state, void* memory, int64_t bytes);

 private:
  const nccl& nccl_;
  const shards& shards_;
  dtype type_;
  void* received_;
  queue& computation_;
  queue own_;
  point computed_, exchanged_;
  std::vector<std::unique_ptr<point>> gathered_;  // a bucket's
};

}  // namespace gpt2
