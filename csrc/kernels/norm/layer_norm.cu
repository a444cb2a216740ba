// layer_norm: enters its launchers in the table.
#include "kernels/norm/norm_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {
namespace {

KITTENS_LAUNCHER(kLayerNormForward, launch_norm_forward<layer_norm_kind>);
KITTENS_LAUNCHER(kLayerNormBackward, launch_norm_backward<layer_norm_kind>);

}  // namespace
}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
