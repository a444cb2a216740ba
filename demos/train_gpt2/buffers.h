// The trainer's device memory: one allocation of each kind, laid out at the start.
#pragma once

#include <vector>

#include "kernels.h"
#include "memory.h"
#include "outliers.h"
#include "parameters.h"
#include "shards.h"

namespace gpt2 {

// What one micro-batch is, and how many are a step.
struct run_shape {
  int64_t batch, length, micro_steps = 1;  // of a rank
  // gelu or SwiGLU, in the backward: one layer's memory for it instead of all layers'
  bool recompute = false;
  int ranks = 1, rank = 0;

  int64_t rows() const { return batch * length; }
};

// What the forward of a layer leaves for its backward: [rows, …] of the model's dtype, statistics
// in float32. Of Llama's shape q and k are turned, hidden is gate and up in one row, and there are
// no means.
struct layer_activations {
  void *normal1, *qkv, *attended, *middle, *normal2, *hidden, *output;
  void* activated;  // gelu of hidden, or SwiGLU: where it is computed again, the same memory for
                    // all layers
  float *mean1, *rstd1, *lse, *mean2, *rstd2;
};

// Sizes that follow from how it is computed.
struct extents {
  int64_t workspace_bytes, counters;
  int64_t outlier_window;
  bool master;  // weights are roundings of float32 ones
};

// What a step has to tell the host, in floats: of each rank, `numbers`, the sums of its losses and
// the norm of its gradients; and a verdict.
struct results {
  explicit results(const run_shape& s) : micro_steps(s.micro_steps), ranks(s.ranks) {}

  int64_t numbers() const { return micro_steps + 1; }
  int64_t floats() const { return ranks * numbers() + int64_t{sizeof(verdict) / sizeof(float)}; }
  verdict* verdict_in(float* all) const {
    return reinterpret_cast<verdict*>(all + ranks * numbers());
  }
  double loss_in(const float* all) const;  // the sum of all ranks'

  int64_t micro_steps, ranks;
};

struct buffers {
  buffers(const config& c, const parameters& p, const shards& s, const run_shape& shape, dtype type,
          const extents& more, const device& d, nccl* between);

  // kind: parameters
  void* weights;  // [s.total]
  // kind: gradients
  void* gradients;       // [s.total], summed over the micro-batches of a step
  void* norm_gradients;  // [p.total − p.norms]: the norms' of one micro-batch, to be added
  void* received;        // of several ranks [ranks, s.largest_part()]: a bucket's, one part of each
  // kind: optimizer state
  float *exp_avg, *exp_avg_sq;  // [s.state]
  float* master;                // [s.state] where weights are roundings of it, else null
  // kind: activations
  std::vector<layer_activations> layers;
  void *embedded, *branch, *last_normal;  // [rows, width]; branch: what is to be added next
  float *last_mean, *last_rstd;
  float* losses;  // [rows]
  void* dnormal;  // [rows, width]
  float* delta;   // [batch, heads, length]
  void* logits;   // [rows, padded vocabulary]: then their gradients, and then those of layers:
  // dhidden, where dattended and dqkv lie, of each part of the MLP [rows, mlp_width], and of
  // Llama's shape one more, of what is activated.
  void *dhidden, *dattended, *dqkv;
  void* dstream[2];  // [rows, width]
  // kind: workspace
  void* workspace;
  int* counters;      // zero between launches
  int* tokens;        // micro_steps token batches
  float* numbers;     // as `results` has them
  float* row_weight;  // [1]: of a row's loss in the mean
  float *cos, *sin;   // [length, head_dim / 2], of Llama's shape
  // What an update reads and changes, so that its launches are the same at every step.
  float* learning_rate;  // [1]
  float* updates;        // [pieces]: how many were made of each
  float* update_norm;    // [1]: the gradients', or infinity: none is made
  outlier_window loss_window, norm_window;

  arena parameter_memory, gradient_memory, state_memory, activation_memory, workspace_memory;

  // A table of the kinds and their sizes; with a sampler's bytes, where there is one.
  std::string description(int64_t sampling_bytes) const;

 private:
  void lay_out_numbers(const run_shape& shape, const shards& s, const extents& more);
  void lay_out_activations(const config& c, const run_shape& shape, int64_t element);
};

}  // namespace gpt2
