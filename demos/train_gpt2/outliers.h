// Whether an update is made: by how far its loss and its gradients' norm lie from those of the
// steps before, and whether the norm is finite. Decided on the device, so that the host need not
// wait for the numbers; outliers.cu has the device code.
//
//   z = (x − mean) / deviation     over a window of the last values, x among them: as llm.c's.
//
// There is no z (NaN) until the window was full before. A z among n values is at most √(n − 1).
#pragma once

#include <cstdint>

#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::stream;

struct outlier_options {
  int64_t window = 128;
  double loss_z = 0, norm_z = 0;  // above it, no update is made; 0: whatever it is
};

// The last values of a number, a ring. Values that are not finite do not enter it.
struct outlier_window {
  float* values;  // [window]
  int* seen;      // [1]: so many values came; from `window` to 2 · window − 1 round and round
};

// What is said of a step. All of float32, to be copied as one.
struct verdict {
  float norm = 0;
  float loss_z = 0, norm_z = 0;  // NaN: none yet
  float skipped = 0;             // 1, or 0
};

struct judge_problem {
  int64_t ranks, micro_steps, rows;  // rows: of all micro-batches of all ranks
  outlier_options options;
};
struct judge_tensors {
  // [ranks, micro_steps + 1]: the sums of each rank's losses, and the norm of its gradients
  const float* numbers;
  verdict* said;
  float* update_norm;  // [1]: the norm; infinity where no update is made, which adamw then skips
  outlier_window of_losses, of_norms;
};
void judge(const judge_problem& p, const judge_tensors& t, stream s);

}  // namespace gpt2
