// The forms of attention_decode in bf16, for ptxas of any architecture: fp16 differs in one word of
// its products.
#include "kernels/attention_decode/attention_decode_launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

template <size_t I = 0>
void launch_from(const attention_decode_params& p) {
  constexpr decode_heads kHeads = kDecodeHeads[I];
  launch_heads<bf16, kHeads, bf16>(p, nullptr);
  if constexpr (kHeads.e4m3) launch_heads<bf16, kHeads, fp8e4m3>(p, nullptr);
  if constexpr (I + 1 < std::size(kDecodeHeads)) launch_from<I + 1>(p);
}

void launch_all(const attention_decode_params& p) { launch_from(p); }

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
