// attention: picks the configuration, and enters the launcher in the table.
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_launch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::inline KITTENS_TARGET {
namespace {

void launch(const attention_forward_params& p, kittens::host::stream s) {
  const auto with_type = [&]<class T>(T) {
    kittens::host::dispatch<64, 128>("head_dim", p.head_dim, [&]<int D> {
      if (p.causal) return launch_attention_forward<attention_forward_config<T, D, true>>(p, s);
      launch_attention_forward<attention_forward_config<T, D, false>>(p, s);
    });
  };
  switch (p.type) {
    case dtype::float16: return with_type(half{});
    case dtype::bfloat16: return with_type(bf16{});
    case dtype::float32: break;
  }
  throw kittens::host::error("attention_forward: type must be float16 or bfloat16, got float32");
}

KITTENS_LAUNCHER("attention_forward", attention_forward_params, launch);

}  // namespace
}  // namespace thunderkittens::inline KITTENS_TARGET
