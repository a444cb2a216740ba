// The gradient of linear attention's decays: its launch.
#pragma once

#include "kernels/linear_attention/linear_attention_decay_gradient.cuh"
#include "kittens/host/device.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_decay_gradient(const linear_attention_decay_gradient_params& p, host::stream s) {
  static_assert(host::fits_every_architecture(sizeof(decay_gradient_shared<Config>)),
                "a block's shared memory");
  const int64_t slots =
      linear_attention_anchor_slots(p.length, p.sequences, p.cu_seqlens != nullptr, Config::anchor);
  const int64_t groups = (p.heads + Config::heads - 1) / Config::heads;
  host::launch_programmatic(
      linear_attention_decay_gradient<Config>,
      {{slots * groups}, {Config::threads}, sizeof(decay_gradient_shared<Config>)}, s, p);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
