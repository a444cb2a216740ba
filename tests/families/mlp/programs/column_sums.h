// Sums of columns.
#pragma once

#include "kernels/mlp/mlp.h"

// As the launcher.
void run(const thunderkittens::column_sums_params& p);
