// The forms of hedgehog attention's generic kernels in bf16, for ptxas of any architecture: fp16
// differs in one word of its products.
#include "kernels/hedgehog_attention/hedgehog_attention_generic_backward_launch.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_generic_launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

void launch_all(const hedgehog_attention_params& p, const hedgehog_attention_backward_params& b) {
  launch_hedgehog_attention_generic<bf16>(p, nullptr);
  launch_hedgehog_attention_generic_backward<bf16>(b, nullptr);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
