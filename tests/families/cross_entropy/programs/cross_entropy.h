// The kernels of cross_entropy, in the forms that run all of their code between them.
// A row in a cluster has two blocks, or eight where it is of floats.
#pragma once

#include "kernels/cross_entropy/cross_entropy.h"

enum class forward_form {
  rows_of_a_warp,
  rows,
  cluster,
  cluster_of_floats,
  loss_of_floats,
  two_passes,
  two_passes_of_floats,
  chunks,
  chunks_of_floats
};

// float where the form says so, bf16 elsewhere. A program has the forms of one kernel.
void run_forward(forward_form form, const thunderkittens::cross_entropy_forward_params& p);
void run_backward(const thunderkittens::cross_entropy_backward_params& p);
void run_count(const thunderkittens::cross_entropy_count_params& p);
void run_total(const thunderkittens::cross_entropy_total_params& p);
