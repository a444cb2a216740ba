// attention_decode: picks the configuration, and enters the launcher in the table.
#include "kernels/attention_decode/attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"
#include "kittens/host/block_shared.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {
namespace {

// The form that the problem has, which is number I or a later one.
template <class T, class Cache, int Kb, size_t I = 0>
void launch_from(const attention_decode_params& p, kittens::host::stream s) {
  constexpr decode_heads kHeads = kDecodeHeads[I];
  if constexpr (I + 1 < std::size(kDecodeHeads)) {
    const bool is_it = &decode_heads_of(p.problem) == &kDecodeHeads[I];
    if (!is_it) return launch_from<T, Cache, Kb, I + 1>(p, s);
  }
  if constexpr (kHeads.e4m3 || sizeof(Cache) > 1) launch_heads<T, kHeads, Cache, Kb>(p, s);
}
template <class T, class Cache>
void launch_of_types(const attention_decode_params& p, kittens::host::stream s) {
  kittens::host::for_block_shared_kb([&]<int Kb> { launch_from<T, Cache, Kb>(p, s); });
}
template <class T>
void launch_of_type(const attention_decode_params& p, kittens::host::stream s) {
  if (p.problem.cache.e4m3) return launch_of_types<T, fp8e4m3>(p, s);
  launch_of_types<T, T>(p, s);
}

void launch_attention_decode(const attention_decode_params& p, kittens::host::stream s) {
  if (p.problem.type == dtype::float16) return launch_of_type<half>(p, s);
  launch_of_type<bf16>(p, s);
}

KITTENS_LAUNCHER(kAttentionDecode, launch_attention_decode);

}  // namespace
}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
