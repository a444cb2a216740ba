// The generic kernel's configurations of bf16: for tests/ptxas/test_generic.py, which compiles them
// for several architectures.
#include "kernels/linear_attention/linear_attention_generic_launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

void launch_forms(const linear_attention_params& p, host::stream s) {
  launch_linear_attention_generic<bf16, 64, 4, false>(p, s);
  launch_linear_attention_generic<bf16, 64, 4, true>(p, s);
  launch_linear_attention_generic<bf16, 64, 8, false>(p, s);
  launch_linear_attention_generic<bf16, 128, 4, false>(p, s);
  launch_linear_attention_generic<bf16, 128, 8, false>(p, s);
  launch_linear_attention_generic<bf16, 128, 8, true>(p, s);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
