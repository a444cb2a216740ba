// The forms of attention_decode in bf16, for ptxas of any architecture: fp16 differs in one word of
// its products.
#include "kernels/attention_decode/attention_decode_launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

template <int Columns, bool Padded = false, int Slices = 1>
void launch_both(const attention_decode_params& p) {
  launch_decode<decode_config<bf16, Columns, bf16, Padded, Slices>>(p, nullptr);
  if constexpr (Columns % 32 == 0) {
    launch_decode<decode_config<bf16, Columns, fp8e4m3, Padded, Slices>>(p, nullptr);
  }
}

void launch_all(const attention_decode_params& p) {
  launch_both<64>(p);
  launch_both<128>(p);
  launch_both<80, true>(p);
  launch_both<96, true>(p);
  launch_both<112, true>(p);
  launch_both<128, true>(p);
  launch_both<96, true, 2>(p);
  launch_both<128, true, 2>(p);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
