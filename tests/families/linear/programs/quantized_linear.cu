// quantized_linear's kernel: where E4M3 is 1 of such weights, else of int4. SHARED_KB: the
// architecture's, of which the form is.
#include "linear.h"

#include "kernels/linear/linear_generic_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

template <class T>
void run_type(const linear_params& p) {
#if E4M3
  using weight = linear_e4m3<T>;
#else
  using weight = linear_int4<T>;
#endif
  if (p.problem.gated) {
    return launch_linear_generic<linear_generic_config<T, true, weight, SHARED_KB>>(p, nullptr);
  }
  launch_linear_generic<linear_generic_config<T, false, weight, SHARED_KB>>(p, nullptr);
}

void run(const linear_params& p) {
  if (p.problem.type == dtype::float16) return run_type<kittens::half>(p);
  run_type<kittens::bf16>(p);
}
