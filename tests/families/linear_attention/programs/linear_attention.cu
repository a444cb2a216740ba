#include "linear_attention.h"

#include <type_traits>

#include "kernels/linear_attention/linear_attention_launch.cuh"

using namespace thunderkittens::linear_attention_kernels;

void run(const thunderkittens::linear_attention_params& p) {
  const auto with_weights = [&]<bool Weighted>(std::bool_constant<Weighted>) {
    if (p.values <= 64) {
      const auto launch = p.reverse
                              ? launch_linear_attention<kittens::bf16, 64, 1, true, Weighted>
                              : launch_linear_attention<kittens::bf16, 64, 1, false, Weighted>;
      launch(p, nullptr);
    } else {
      const auto launch = p.reverse
                              ? launch_linear_attention<kittens::bf16, 128, 2, true, Weighted>
                              : launch_linear_attention<kittens::bf16, 128, 2, false, Weighted>;
      launch(p, nullptr);
    }
  };
  const bool weighted = p.k_weights || p.o_weights || p.skip || p.own_scores;
  weighted ? with_weights(std::true_type{}) : with_weights(std::false_type{});
}
