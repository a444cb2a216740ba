// The gradient of linear attention's decays: picks the configuration, and enters the launcher in
// the table.
#include "kernels/linear_attention/linear_attention_decay_gradient.h"

#include "kernels/linear_attention/linear_attention_decay_gradient_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch(const linear_attention_decay_gradient_params& p, kittens::host::stream s) {
  kittens::host::dispatch<1, 2>("dots of a token", static_cast<int>(p.dots), [&]<int Dots> {
    kittens::host::dispatch<128, 256>("anchor", static_cast<int>(p.anchor), [&]<int Anchor> {
      launch_decay_gradient<decay_gradient_config<Dots, Anchor>>(p, s);
    });
  });
}

KITTENS_LAUNCHER(kLinearAttentionDecayGradient, launch);

}  // namespace
}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
