// The forms of linear attention's generic kernel in bf16, for ptxas of any architecture: fp16
// differs in one word of its products, and takes no factors.
#include "kernels/linear_attention/linear_attention_generic_launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

void launch_all(const linear_attention_params& p) {
  launch_linear_attention_generic<bf16, 64, false>(p, nullptr);
  launch_linear_attention_generic<bf16, 64, true>(p, nullptr);
  launch_linear_attention_generic<bf16, 128, false>(p, nullptr);
  launch_linear_attention_generic<bf16, 128, true>(p, nullptr);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
