// The forms of based_attention's generic kernel in bf16, for ptxas of any architecture: fp16
// differs in one word of its products.
#include "kernels/based_attention/based_attention_generic_launch.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

void launch_all(const based_attention_params& p) {
  using enum based_attention_pass;
  launch_based_attention_generic<bf16, forward>(p, nullptr);
  launch_based_attention_generic<bf16, dq>(p, nullptr);
  launch_based_attention_generic<bf16, dk_dv>(p, nullptr);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
