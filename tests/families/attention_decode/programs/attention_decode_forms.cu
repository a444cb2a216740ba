// The forms of attention_decode in bf16, for ptxas of any architecture: fp16 differs in one word of
// its products.
#include "kernels/attention_decode/attention_decode_launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

template <int... Widths>
void launch_all(const attention_decode_params& p) {
  (launch_decode<decode_config<bf16, Widths>>(p, nullptr), ...);
  (launch_decode<decode_config<bf16, Widths, fp8e4m3>>(p, nullptr), ...);
}

void launch_all(const attention_decode_params& p) { launch_all<64, 128>(p); }

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
