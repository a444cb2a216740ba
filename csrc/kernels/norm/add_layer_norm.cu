// add_layer_norm: enters its launchers in the table.
#include "kernels/norm/norm_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {
namespace {

KITTENS_LAUNCHER(kAddLayerNormForward, launch_norm_forward<add_layer_norm_kind>);
KITTENS_LAUNCHER(kAddLayerNormBackward, launch_norm_backward<add_layer_norm_kind>);

}  // namespace
}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
