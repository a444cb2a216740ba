// The forms of the backward's generic kernel in bf16, for ptxas of any architecture: fp16 differs
// in one word of its products.
#include "kernels/attention/attention_backward_generic_launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <int... Widths>
void launch_all(const attention_backward_params& p) {
  const attention_backward_layout layout(p, kittens::host::kernel_kind::generic);
  (launch_attention_backward_generic<attention_backward_generic_config<bf16, Widths, false>>(
       p, layout, nullptr),
   ...);
  (launch_attention_backward_generic<attention_backward_generic_config<bf16, Widths, true>>(
       p, layout, nullptr),
   ...);
}

void launch_all(const attention_backward_params& p) { launch_all<64, 128, 256>(p); }

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
