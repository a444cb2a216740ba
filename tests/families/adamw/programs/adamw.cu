// The kernels that the mutants change.
#include "adamw.h"

#include "kernels/adamw/adamw_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::adamw_kernels;

void run_adamw(adamw_form form, const adamw_update_params& p) {
  switch (form) {
    case adamw_form::floats: return launch_update<float, float, false>(p, nullptr);
    case adamw_form::masters: return launch_update<bf16, float, true>(p, nullptr);
    case adamw_form::stochastic: return launch_update<bf16, bf16, false>(p, nullptr);
  }
}

void run_adamw_norm(bool halves, const adamw_norm_params& p) {
  halves ? launch_norm<bf16>(p, nullptr) : launch_norm<float>(p, nullptr);
}
