// attention_decode: picks the configuration, and enters the launcher in the table.
#include "kernels/attention_decode/attention_decode.h"

#include "kernels/attention_decode/attention_decode_launch.cuh"
#include "kittens/host/block_shared.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {
namespace {

template <class T, class Cache>
void launch_of_types(const attention_decode_params& p, kittens::host::stream s) {
  constexpr bool kFp8 = sizeof(Cache) == 1;
  const int64_t head_dim = p.problem.head_dim;
  kittens::host::for_block_shared_kb([&]<int Kb> {
    const int64_t columns = decode_columns(head_dim, kFp8);
    if (decode_slices(head_dim) > 1) {
      if (columns == 96) return launch_decode<decode_config<T, 96, Cache, true, 2, Kb>>(p, s);
      return launch_decode<decode_config<T, 128, Cache, true, 2, Kb>>(p, s);
    }
    switch (columns) {
      case 64: return launch_decode<decode_config<T, 64, Cache, false, 1, Kb>>(p, s);
      case 96: return launch_decode<decode_config<T, 96, Cache, true, 1, Kb>>(p, s);
      case 128:
        if (head_dim < 128) return launch_decode<decode_config<T, 128, Cache, true, 1, Kb>>(p, s);
        return launch_decode<decode_config<T, 128, Cache, false, 1, Kb>>(p, s);
    }
    if constexpr (!kFp8) {
      if (head_dim <= 80) return launch_decode<decode_config<T, 80, Cache, true, 1, Kb>>(p, s);
      launch_decode<decode_config<T, 112, Cache, true, 1, Kb>>(p, s);
    }
  });
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
