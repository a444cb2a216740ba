#include "based_attention.h"

#include "kernels/based_attention/based_attention_launch.cuh"

using namespace thunderkittens::based_attention_kernels;

void run(const thunderkittens::based_attention_params& p) {
  using enum thunderkittens::based_attention_pass;
  const auto launch = p.pass == forward ? launch_based_attention<kittens::bf16, forward>
                      : p.pass == dq    ? launch_based_attention<kittens::bf16, dq>
                                        : launch_based_attention<kittens::bf16, dk_dv>;
  launch(p, nullptr);
}
