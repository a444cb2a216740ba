// linear attention: picks the configuration, and enters the launcher in the table.
#include "kernels/linear_attention/linear_attention.h"

#include <algorithm>
#include <type_traits>

#include "kernels/linear_attention/linear_attention_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const linear_attention_params& p, kittens::host::stream s) {
  if (p.steps.dt != nullptr) return launch_with_gates(p, s);
  const bool weighted = p.k_weights != nullptr || p.o_weights != nullptr || p.skip != nullptr ||
                        p.own_scores != nullptr;
  const bool forward = !p.reverse && p.dots == nullptr && p.o_weights == nullptr &&
                       p.own_scores == nullptr && p.anchor_states == nullptr;
  if (forward && weighted && p.type == dtype::bfloat16 && std::max(p.keys, p.values) <= 64) {
    return launch_parts_and_outputs<linear_attention_forward_config>(p, s);
  }
  const auto with_type = [&]<class T>(T) {
    kittens::host::dispatch<64, 128>("key width", p.keys <= 64 ? 64 : 128, [&]<int K> {
      kittens::host::dispatch<1, 2>("consumers", p.values <= 64 ? 1 : 2, [&]<int Consumers> {
        const auto of_direction = [&]<bool Weighted>(std::bool_constant<Weighted>) {
          const auto run = p.reverse ? launch_linear_attention<T, K, Consumers, true, Weighted>
                                     : launch_linear_attention<T, K, Consumers, false, Weighted>;
          run(p, s);
        };
        weighted ? of_direction(std::true_type{}) : of_direction(std::false_type{});
      });
    });
  };
  switch (p.type) {
    case dtype::float16: return with_type(half{});
    case dtype::bfloat16: return with_type(bf16{});
    case dtype::float32: break;
  }
  throw kittens::host::error("linear_attention: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER(kLinearAttention, launch);

}  // namespace
}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
