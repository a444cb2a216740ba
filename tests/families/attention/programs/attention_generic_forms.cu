// The forms of attention's generic kernel in bf16, for ptxas of any architecture: fp16 differs in
// one word of its products.
#include <utility>

#include "kernels/attention/attention_generic_launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <size_t... Forms>
void launch_all(std::index_sequence<Forms...>, const attention_forward_params& p) {
  (launch_attention_generic<attention_generic_config<bf16, Forms>>(p, nullptr), ...);
}

void launch_all(const attention_forward_params& p) {
  launch_all(std::make_index_sequence<kGenericFormCount>(), p);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
