// quantized_linear's kernel: where E4M3 is 1 of such weights, else of int4. SHARED_KB: the
// architecture's, of which the form is.
#include "linear.h"

#include "kernels/linear/quantized_linear_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

template <class T>
void run_type(const linear_params& p) {
#if E4M3
  launch_quantized_weight<T, linear_e4m3<T>, SHARED_KB>(p, nullptr);
#else
  launch_int4_type<T, SHARED_KB>(p, nullptr);
#endif
}

void run(const linear_params& p) {
  if (p.problem.type == dtype::float16) return run_type<kittens::half>(p);
  run_type<kittens::bf16>(p);
}
